"""A decoder's ops on a backend, ready to be timed: parameters, buffers, steps of any shape."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

import numpy as np

from pegainfer_bench.kernels.parameters import load_parameters
from pegainfer_core.backend import DType, KvLayout, StepMetadata, make_backend
from pegainfer_core.contract import CoreOptions
from pegainfer_core.weights import (
    DummyCheckpoint,
    ParameterLoader,
    TensorSpec,
    rope_config,
    round_floats,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pegainfer_bench.kernels.sizes import DecoderSizes
    from pegainfer_core.backend import Backend, Batch, KvPool, Tensor

PAGE_TOKENS: Final = 16
_POOL_BYTES: Final = {"cuda": 8 << 30, "numpy": 256 << 20}
"""What the KV pages of one measurement may take, beyond what one layer needs."""

_READ_SHAPE: Final = (64, 1 << 22)
"""Rows and columns that are read to find the rate: a GiB."""

_ROUNDS: Final = 3
_SEED: Final = 20


class DecoderBench:
    """A backend with a decoder's parameters.

    Args:
        backend: "numpy" or "cuda".
        sizes: Of the decoder.
        device: Ordinal of the GPU.
        num_threads: Of the NumPy backend.
        max_tokens: Most tokens in a step.
        max_rows: Most rows in a step.
        max_context: Longest context.
        rotate_bytes: What the operands of an op cycle through.
        min_time_s: To time each op for.

    Raises:
        ConfigError: The backend cannot be used, or memory is short.
    """

    def __init__(
        self,
        backend: str,
        sizes: DecoderSizes,
        *,
        device: int,
        num_threads: int | None,
        max_tokens: int,
        max_rows: int,
        max_context: int,
        rotate_bytes: int,
        min_time_s: float,
    ) -> None:
        self.sizes, self.shape = sizes, sizes.shape
        self.device, self.num_threads = device, num_threads
        self.rotate_bytes, self._min_time_s = rotate_bytes, min_time_s
        self._max_tokens, self._max_rows = max_tokens, max_rows
        self.backend: Backend = make_backend(backend, CoreOptions(device=device), num_threads)
        self.dtype = self.backend.compute_dtype(sizes.stored)
        # NumPy holds every value as float32.
        self.value_bytes = 4 if backend == "numpy" else self.dtype.itemsize
        self.backend.prepare_decoder(
            self.shape, sizes.hidden, sizes.intermediate, self.layout(num_layers=1)
        )
        self._random = np.random.default_rng(_SEED)
        self.parameters = load_parameters(
            self.backend, sizes, self.dtype, self.value_bytes, rotate_bytes
        )
        rope = rope_config({"rope_theta": 1e6}, sizes.head_dim)
        self.rope = self.backend.rope_table(rope, max_context + PAGE_TOKENS, self.dtype)
        self.workspace = self.backend.workspace(max_tokens, max_context)
        self.hidden = self.values(max_tokens, sizes.hidden)
        self.qkv = self.values(max_tokens, self.shape.qkv_width)
        self.attended = self.values(max_tokens, self.shape.query_width)
        self.activated = self.values(max_tokens, sizes.intermediate)
        self._probe = self.backend.empty((1, 8), DType.FLOAT32)

    def layout(self, num_layers: int) -> KvLayout:
        """Of pages that hold so many layers."""
        return KvLayout(
            num_layers=num_layers,
            num_kv_heads=self.sizes.num_kv_heads,
            head_dim=self.sizes.head_dim,
            page_tokens=PAGE_TOKENS,
            dtype=self.dtype,
        )

    def values(self, rows: int, width: int, dtype: DType | None = None) -> Tensor:
        """A tensor of random values; equal ones would let the device run cooler than at work."""
        block = self._random.standard_normal(1 << 16).astype(np.float32)
        kind = dtype or self.dtype
        round_floats(block, kind.value)
        return self.backend.adopt(np.resize(block, (rows, width)), kind)

    def step(self, rows: Sequence[tuple[int, int]], num_decode: int) -> StepMetadata:
        """A step's metadata.

        Args:
            rows: (context, tokens of this step) each, decoding ones first. Pages are taken in
                order, from the first behind the padding page.
            num_decode: Rows that decode.
        """
        pages = [-(-context // PAGE_TOKENS) for context, _ in rows]
        metadata = StepMetadata(
            max_tokens=self._max_tokens,
            max_rows=self._max_rows,
            max_pages=sum(pages) + self._max_rows,
            page_tokens=PAGE_TOKENS,
        )
        first = 1
        for (context, tokens), count in zip(rows, pages, strict=True):
            ids = self._random.integers(0, self.sizes.vocab_size, tokens).tolist()
            metadata.add_row(ids, context - tokens, range(first, first + count), samples=True)
            first += count
        metadata.finish(num_decode)
        return metadata

    def pool(self, rows: Sequence[tuple[int, int]]) -> KvPool:
        """Pages for a step's rows, filled, with as many layers as the memory limit allows."""
        num_pages = sum(-(-context // PAGE_TOKENS) for context, _ in rows)
        layer_bytes = num_pages * self.layout(1).page_bytes
        fitting = max(1, _POOL_BYTES[self.backend.name] // layer_bytes)
        kv = self.backend.kv_pool(self.layout(min(self.sizes.num_layers, fitting)), num_pages)
        page = self.backend.upload(self.step([(PAGE_TOKENS, PAGE_TOKENS)], 0))
        for layer in range(kv.layout.num_layers):
            self.backend.ops.kv_write(page, self.qkv, self.shape, kv, layer)
        if num_pages > 1:
            self.backend.copy_pages(kv, [1] * (num_pages - 1), list(range(2, num_pages + 1)))
        self.synchronize()
        return kv

    def synchronize(self) -> None:
        """Wait until the device is done."""
        self.backend.to_host(self._probe, 1)

    def time_s(self, batch: Batch, work: Callable[[Batch], None]) -> float:
        """Seconds of one run of `work`, the best of several rounds."""
        for _ in range(2):  # A first run plans and loads, a second one may be recorded.
            self.backend.run(batch, work)
        self.synchronize()
        once_s = self._round_s(batch, work, 1)
        repeats = max(1, math.ceil(self._min_time_s / once_s))
        return min(self._round_s(batch, work, repeats) / repeats for _ in range(_ROUNDS))

    def time_product(self, size: int) -> float:
        """Seconds of a square product of that many rows and columns."""
        specs = {"square": TensorSpec((size, size))}
        with DummyCheckpoint(specs, seed=1, dtype=self.dtype.value) as source:
            loader = ParameterLoader(source, specs, dtype=self.dtype.value)
            weight = self.backend.load(loader, ["square"], self.dtype)
            self.backend.end_loading()
        x, out = self.values(size, size), self.values(size, size)
        # More than one token: the step of a prompt, which no backend records.
        batch = self.backend.upload(self.step([(2, 2)], 0))
        ops = self.backend.ops
        return self.time_s(batch, lambda batch: ops.linear(size, x, weight, out))

    def read_rate(self) -> float:
        """Bytes a second that argmax reads of rows far larger than any cache."""
        rows, width = _READ_SHAPE
        logits = self.values(rows, width, DType.FLOAT32)
        best = self.backend.empty((rows, 2), DType.FLOAT32)
        workspace = self.backend.workspace(rows, 1)
        batch = self.backend.upload(self.step([(2, 2)], 0))
        ops = self.backend.ops
        took_s = self.time_s(batch, lambda batch: ops.argmax(rows, logits, best, workspace))
        return 4 * rows * width / took_s

    def close(self) -> None:
        """Release the backend's threads."""
        self.backend.close()

    def _round_s(self, batch: Batch, work: Callable[[Batch], None], repeats: int) -> float:
        started_s = time.perf_counter()
        for _ in range(repeats):
            self.backend.run(batch, work)
        self.synchronize()
        return time.perf_counter() - started_s
