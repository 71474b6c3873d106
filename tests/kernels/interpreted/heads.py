"""Heads of attention whose output is gated, interpreted, beside the NumPy ops."""

from __future__ import annotations

import numpy as np

from pegainfer_core.backend import AttentionShape, DType, KvLayout, NumpyBackend, StepMetadata
from pegainfer_core.backend.numpy.arrays import floats, stored_pages
from pegainfer_core.kernels import catalog
from pegainfer_core.weights import RopeConfig
from tests.kernels.interpreted.delta import assert_close
from tests.kernels.interpreted.host import HostDevice, HostLibrary, array

PAGE = 16
ROWS = ((20, 1), (17, 17), (40, 3))
LAYER = 1


def run(num_heads: int, num_kv_heads: int, head_dim: int, rotary_dim: int) -> None:
    """Norms, partial RoPE, KV write and output gate; fails where the two differ."""
    random = np.random.default_rng()
    backend, device, library = NumpyBackend(), HostDevice(), HostLibrary()
    shape = AttentionShape(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        scale=head_dim**-0.5,
        norm_eps=1e-3,
    )
    layout = KvLayout(
        num_layers=2,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        page_tokens=PAGE,
        dtype=DType.FLOAT32,
    )
    metadata = StepMetadata(64, 4, 64, PAGE)
    pages = iter(random.permutation(16) + 1)
    for context, count in ROWS:
        own = [int(next(pages)) for _ in range(layout.pages_for(context))]
        metadata.add_row([0] * count, context - count, own, samples=True)
    metadata.finish(1)
    count, width = metadata.num_tokens, shape.qkv_width + shape.query_width
    x = random.standard_normal((count, width)).astype(np.float32)
    heads = num_heads + num_kv_heads
    norm = (1 + 0.2 * random.standard_normal((heads, head_dim))).astype(np.float32)
    rope = RopeConfig(rope_type="default", theta=1e7, rotary_dim=rotary_dim)
    table = backend.rope_table(rope, 64, DType.FLOAT32)
    kv = backend.kv_pool(layout, 16)
    qkv, batch, ops = backend.adopt(x.copy(), DType.FLOAT32), backend.upload(metadata), backend.ops
    ops.head_norm(count, qkv, backend.adopt(norm, DType.FLOAT32), shape.norm_eps)
    ops.rope(batch, qkv, heads, head_dim, table)
    ops.kv_write(batch, qkv, shape, kv, LAYER)

    mine, scale = device.tensor(x), device.tensor(norm)
    stored = device.tensor(np.zeros(stored_pages(kv).shape, np.float32))
    cos, sin = device.tensor(floats(table.cos)), device.tensor(floats(table.sin))
    spec = catalog.prepare_heads(
        "fp32", head_dim, rotary_dim // 2, PAGE, norm=True, rope=True, write=True, weight="fp32"
    )
    of_layer = LAYER * PAGE * layout.token_layer_bytes
    addresses = (tensor.storage.address for tensor in (mine, scale, cos, sin))  # type: ignore[attr-defined]
    library.get(spec).launch(
        0, (count, heads), *addresses, metadata.positions.ctypes.data,
        metadata.slots.ctypes.data, stored.storage.address + of_layer,  # type: ignore[attr-defined]
        width, 0, num_heads, num_kv_heads, layout.page_bytes // 4, shape.norm_eps,
    )  # fmt: skip
    queries = slice(0, shape.query_width)
    assert_close(array(mine)[:, queries], floats(qkv)[:count, queries], "queries")
    np.testing.assert_allclose(array(stored), stored_pages(kv), atol=1e-5)
    _gate(backend, device, library, shape, x)


def _gate(
    backend: NumpyBackend,
    device: HostDevice,
    library: HostLibrary,
    shape: AttentionShape,
    x: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
) -> None:
    count, width = len(x), shape.query_width
    attended = np.random.default_rng().standard_normal((count, width)).astype(np.float32)
    expected, gates = (backend.adopt(each.copy(), DType.FLOAT32) for each in (attended, x))
    backend.recurrent_ops().sigmoid_mul(count, gates, shape.qkv_width, expected)
    found, its_gates = device.tensor(attended), device.tensor(x)
    library.get(catalog.sigmoid_mul("fp32", width)).launch(
        0, (count, -(-width // catalog.SMALL_BLOCK)), its_gates.storage.address,  # type: ignore[attr-defined]
        found.storage.address, x.shape[1], shape.qkv_width, width,  # type: ignore[attr-defined]
    )  # fmt: skip
    assert_close(array(found), floats(expected), "gated")
