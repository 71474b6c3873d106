"""A layer's products with adapters as the CUDA backend computes them, beside the NumPy ops.

Our own kernels are interpreted, the library's products are NumPy's. Runs in processes of its own;
see `host`.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pegainfer_core.backend import (
    AttentionShape,
    AttentionWeights,
    DType,
    LoraSite,
    MlpWeights,
    NumpyBackend,
    StepMetadata,
    Workspace,
)
from pegainfer_core.backend.cuda.arrays import empty_tensor
from pegainfer_core.backend.cuda.work_items import PrefillLimits
from pegainfer_core.backend.numpy.arrays import floats
from tests.kernels.interpreted.delta import assert_close
from tests.kernels.interpreted.host import HostDevice, HostLibrary, array, stand_in_for_cupy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.backend import Tensor
    from pegainfer_core.backend.cuda.product_shape import ProductShape

    FloatArray = NDArray[np.float32]

HIDDEN, INNER, ROOM, SLOTS = 512, 96, 16, 3
SHAPE = AttentionShape(num_heads=4, num_kv_heads=2, head_dim=16, scale=0.25, norm_eps=1e-3)
EPS = 1e-3
MAX_TOKENS = 64


class HostProducts:
    """The library's products, on host memory."""

    def run(self, shape: ProductShape, x: int, weight: int, out: int) -> None:
        rows, matrix, target = (
            _at(at, *sizes)
            for at, sizes in (
                (x, (shape.rows, shape.k)),
                (weight, (shape.n, shape.k)),
                (out, (shape.rows, shape.n)),
            )
        )
        target[...] = rows @ matrix.T + (target if shape.accumulate else 0)


class Both(NamedTuple):
    """One tensor on both."""

    numpy: Tensor
    device: Tensor


def run(rows: tuple[tuple[int, int], ...]) -> None:
    """Fails where the two differ; rows are tokens and slot of an adapter, decoding ones first."""
    stand_in_for_cupy()
    _Layer(rows).run()


class _Layer:
    def __init__(self, rows: tuple[tuple[int, int], ...]) -> None:
        from pegainfer_core.backend.cuda.cuda_ops import CudaOps
        from pegainfer_core.backend.cuda.metadata_upload import MetadataUpload
        from pegainfer_core.backend.cuda.work_items import AttentionLimits

        self.random = np.random.default_rng()
        self.numpy = NumpyBackend()
        self.device = HostDevice()
        self.ops = CudaOps(self.device, HostLibrary(), HostProducts())  # type: ignore[arg-type]
        # Heads have tests of their own.
        self.ops._attention.prepare = lambda *arguments: None  # type: ignore[method-assign]
        metadata = StepMetadata(MAX_TOKENS, 16, 100, 16)
        for count, slot in rows:
            metadata.add_row([0] * count, 0, [1, 1], samples=True, adapter=slot)
        metadata.finish(next((i for i, row in enumerate(rows) if row[0] > 1), len(rows)))
        limits, device = AttentionLimits(4, 64, PrefillLimits(16, 64, 4)), self.device
        upload = MetadataUpload(device, metadata, limits, 0, num_lora_slots=SLOTS)  # type: ignore[arg-type]
        self.batches = self.numpy.upload(metadata), upload.submit(metadata, None)
        self.count = metadata.num_tokens
        self.workspaces = (
            self.numpy.workspace(MAX_TOKENS, 64),
            Workspace(lambda sizes, kind: empty_tensor(device, sizes, kind), MAX_TOKENS, 64),  # type: ignore[arg-type]
        )

    def run(self) -> None:
        hidden = self._both(MAX_TOKENS, HIDDEN)
        self._qkv(hidden)
        self._add("out_proj_add", SHAPE.query_width, hidden)
        self._gate_up(hidden)
        self._add("down_add", INNER, hidden)

    def _qkv(self, hidden: Both) -> None:
        matrix, norm = self._both(SHAPE.qkv_width, HIDDEN, scale=HIDDEN**-0.5), self._both(HIDDEN)
        site = self._site(HIDDEN, (SHAPE.query_width, SHAPE.kv_width, SHAPE.kv_width))
        qkv = self._both(MAX_TOKENS, SHAPE.qkv_width)
        weights = AttentionWeights(norm.device, matrix.device, norm.device, norm.device)
        batch, workspace = self.batches[1], self.workspaces[1]
        self.ops.norm_qkv_rope_write(
            batch,
            hidden.device,
            weights,
            SHAPE,
            None,
            None,
            0,
            qkv.device,
            workspace,
            site[1],  # type: ignore[arg-type]
        )
        ops, count = self.numpy.ops, self.count
        normed = self.workspaces[0].buffer("normed", HIDDEN, DType.FLOAT32)
        ops.rms_norm(count, hidden.numpy, norm.numpy, SHAPE.norm_eps, normed)
        ops.linear(count, normed, matrix.numpy, qkv.numpy)
        ops.add_lora(self.batches[0], normed, site[0], qkv.numpy, self.workspaces[0])
        self._check(qkv, "queries, keys and values")

    def _gate_up(self, hidden: Both) -> None:
        matrix, norm = self._both(2 * INNER, HIDDEN, scale=HIDDEN**-0.5), self._both(HIDDEN)
        site, activated = self._site(HIDDEN, (INNER, INNER)), self._both(MAX_TOKENS, INNER)
        for index, ops in enumerate((self.numpy.ops, self.ops)):
            weights = MlpWeights(norm[index], matrix[index], norm[index], EPS)
            ops.norm_gate_up_act(
                self.batches[index], hidden[index], weights, activated[index],
                self.workspaces[index], site[index],
            )  # fmt: skip
        self._check(activated, "activations")

    def _add(self, name: str, width: int, hidden: Both) -> None:
        """A projection that is added to the residual stream."""
        matrix, x = self._both(HIDDEN, width, scale=width**-0.5), self._both(MAX_TOKENS, width)
        site = self._site(width, (HIDDEN,))
        for index, ops in enumerate((self.numpy.ops, self.ops)):
            getattr(ops, name)(
                self.batches[index], x[index], matrix[index], hidden[index],
                self.workspaces[index], site[index],
            )  # fmt: skip
        self._check(hidden, name)

    def _site(self, width: int, widths: tuple[int, ...]) -> tuple[LoraSite, LoraSite]:
        down = self._both(SLOTS, len(widths) * ROOM, width, scale=width**-0.5)
        up = self._both(SLOTS, sum(widths), ROOM, scale=0.25)
        facts = self._hold(np.array([[0.5 + i, ROOM] for i in range(SLOTS)], np.float32))
        parts = zip(down, up, facts, strict=True)
        first, second = (LoraSite(*tensors, widths) for tensors in parts)
        return first, second

    def _both(self, *shape: int, scale: float = 1.0) -> Both:
        return self._hold((self.random.standard_normal(shape) * scale).astype(np.float32))

    def _hold(self, values: FloatArray) -> Both:
        return Both(self.numpy.adopt(values.copy(), DType.FLOAT32), self.device.tensor(values))

    def _check(self, tensors: Both, what: str) -> None:
        expected = floats(tensors.numpy)[: self.count]
        assert_close(array(tensors.device)[: self.count], expected, what)


def _at(address: int, rows: int, columns: int) -> FloatArray:
    raw = (ctypes.c_char * (4 * rows * columns)).from_address(address)
    values: FloatArray = np.frombuffer(raw, np.float32).reshape(rows, columns)
    return values
