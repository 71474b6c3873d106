"""Times decode attention alone on the GPU: `bench_attention.py`.

Head norms, RoPE, KV write and attention of 36 layers of heads as in Qwen3-4B, each layer on pages
of its own in random order, recorded as one graph. Prints microseconds a layer and the rate at which
keys and values are read, with what is before the attention done inside it and apart.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from pegainfer_core.backend import AttentionShape, DType, KvLayout, StepMetadata
from pegainfer_core.backend.cuda import CudaBackend
from pegainfer_core.backend.cuda.arrays import address
from pegainfer_core.backend.cuda.cuda_batch import DeferredHeads
from pegainfer_core.backend.cuda.device import Event
from pegainfer_core.weights import RopeConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.backend import KvPool, Tensor

READ_BYTES_A_S = 4.4e12
_LAYERS = 36
_HEADS, _KV_HEADS, _HEAD_DIM, _PAGE = 32, 8, 128, 16
_MAX_TOKENS, _MAX_CONTEXT = 256, 40_960
_RANDOM_PAGES = 64
_REPLAYS = 10


class AttentionBench:
    """A pool of random pages and everything else that attention reads."""

    def __init__(self, num_pages: int) -> None:
        self.backend = CudaBackend(num_kv_heads=_KV_HEADS, group=_HEADS // _KV_HEADS)
        self.shape = AttentionShape(
            num_heads=_HEADS,
            num_kv_heads=_KV_HEADS,
            head_dim=_HEAD_DIM,
            scale=_HEAD_DIM**-0.5,
            norm_eps=1e-6,
        )
        self.layout = KvLayout(
            num_layers=_LAYERS,
            num_kv_heads=_KV_HEADS,
            head_dim=_HEAD_DIM,
            page_tokens=_PAGE,
            dtype=DType.BFLOAT16,
        )
        self.random = np.random.default_rng(0)
        self.num_pages = num_pages
        self.kv = self.backend.kv_pool(self.layout, num_pages)
        self._fill(self.kv)
        rope = RopeConfig(rope_type="default", theta=1e6, rotary_dim=_HEAD_DIM)
        self.rope = self.backend.rope_table(rope, _MAX_CONTEXT, DType.BFLOAT16)
        self.norm = self._tensor(_HEADS + _KV_HEADS, _HEAD_DIM)
        self.qkv = self._tensor(_MAX_TOKENS, self.shape.qkv_width)
        self.attended = self._tensor(_MAX_TOKENS, self.shape.query_width)

    def layer_us(self, contexts: Sequence[int], *, fused: bool) -> float:
        """Microseconds a layer for decoding rows of these contexts."""
        backend, device = self.backend, self.backend.device
        metadata = StepMetadata(_MAX_TOKENS, _MAX_TOKENS, self.num_pages, _PAGE)
        order = (self.random.permutation(self.num_pages) + 1).tolist()
        for context in contexts:
            pages = [order.pop() for _ in range(self.layout.pages_for(context))]
            metadata.add_row([0], context - 1, pages, samples=True)
        metadata.finish(len(contexts))
        batch = backend.upload(metadata)
        workspace = backend.workspace(_MAX_TOKENS, _MAX_CONTEXT)

        def work() -> None:
            for layer in range(_LAYERS):
                batch.deferred = DeferredHeads(layer, self.norm, self.rope) if fused else None
                backend.ops.paged_attention(
                    batch, self.qkv, self.shape, self.kv, layer, self.attended, workspace
                )

        work()
        recording = device.record(work)
        recording.replay(device)
        first, last = Event(timing=True), Event(timing=True)
        first.record(device)
        for _ in range(_REPLAYS):
            recording.replay(device)
        last.record(device)
        last.wait()
        return 1e3 * last.ms_since(first) / _REPLAYS / _LAYERS

    def line(self, name: str, contexts: Sequence[int]) -> str:
        """A line of the table."""
        layer_bytes = sum(contexts) * self.layout.token_bytes / _LAYERS
        texts = []
        for fused in (True, False):
            us = self.layer_us(contexts, fused=fused)
            rate = layer_bytes / us * 1e6
            share = 100 * rate / READ_BYTES_A_S
            texts.append(f"{us:8.2f} us {rate / 1e12:5.2f} TB/s {share:5.1f} %")
        return f"{name:18} fused {texts[0]}, apart {texts[1]}"

    def _tensor(self, rows: int, width: int) -> Tensor:
        values = self.random.standard_normal((rows, width)).astype(np.float32)
        return self.backend.adopt(
            (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32), DType.BFLOAT16
        )

    def _fill(self, kv: KvPool) -> None:
        """Some random pages, copied over all of them."""
        size = self.layout.page_bytes
        some = self._tensor(_RANDOM_PAGES, size // 2)
        for first in range(0, kv.num_pages, _RANDOM_PAGES):
            count = min(_RANDOM_PAGES, kv.num_pages - first)
            self.backend.device.copy(address(kv.pages) + first * size, address(some), count * size)
        self.backend.device.synchronize()


def cases() -> dict[str, list[int]]:
    """Contexts of the rows of each case."""
    random = np.random.default_rng(1)
    return {
        "1 x 16": [16],
        "1 x 1,024": [1024],
        "8 x 1,024": [1024] * 8,
        "64 x 1,150": [1150] * 64,
        "256 x 1,150": [1150] * 256,
        "1 x 32,768": [32_768],
        "8 x 8,192": [8192] * 8,
        "64 ragged": random.integers(200, 8000, 64).tolist(),
    }


def main() -> int:
    bench = AttentionBench(num_pages=20_000)
    print("\n".join(bench.line(name, contexts) for name, contexts in cases().items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
