"""Times each kernel of a delta-rule layer on the GPU: `bench_delta.py`.

Layers as in Qwen3.5-4B, or with the head ratio given (`bench_delta.py 16 48`), each with states,
recorded one kernel at a time over all layers so that no cache holds what a step would read. Prints
microseconds a layer, and what share of that the bytes and products of the kernel need at least.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pegainfer_core.backend import DeltaShape, DeltaWeights, DType, StateLayout, StepMetadata
from pegainfer_core.backend.cuda import CudaBackend
from pegainfer_core.backend.cuda.arrays import address
from pegainfer_core.backend.cuda.cuda_recurrent_ops import CudaRecurrentOps
from pegainfer_core.backend.cuda.device import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pegainfer_core.backend import Batch, Tensor
    from pegainfer_core.backend.cuda.kernel import Kernel
    from pegainfer_core.backend.cuda.library import KernelLibrary
    from pegainfer_core.kernels import KernelSpec

BYTES_A_S: Final = 4.4e12
PRODUCTS_A_S: Final = dict.fromkeys(("relate_pieces", "write_pieces", "scan_pieces"), 990e12)
"""Operations on halves that an H200's tensor cores are sold with."""

_LAYERS: Final = 24
_MAX_TOKENS: Final = 16_384
_MAX_ROWS: Final = 256
_REPLAYS: Final = 10
_PIECE: Final = 64


class Launch(NamedTuple):
    """One that an op asked for."""

    spec: KernelSpec
    grid: tuple[int, int]
    arguments: tuple[float, ...]


class _NotedKernel:
    def __init__(self, spec: KernelSpec, kernel: Kernel, noted: list[Launch]) -> None:
        self._spec, self._kernel, self._noted = spec, kernel, noted

    def launch(self, stream: int, grid: tuple[int, int], *arguments: float) -> None:
        self._noted.append(Launch(self._spec, grid, arguments))
        self._kernel.launch(stream, grid, *arguments)


class NotingLibrary:
    """Kernels that run, and note that they did."""

    def __init__(self, library: KernelLibrary) -> None:
        self._library = library
        self.noted: list[Launch] = []

    def get(self, spec: KernelSpec) -> _NotedKernel:
        """The kernel of a spec."""
        return _NotedKernel(spec, self._library.get(spec), self.noted)


class DeltaBench:
    """Layers, their states, and random inputs."""

    def __init__(self, key_heads: int, value_heads: int) -> None:
        self.backend = CudaBackend()
        self.random = np.random.default_rng(0)
        self.shape = DeltaShape(
            num_key_heads=key_heads,
            num_value_heads=value_heads,
            key_dim=128,
            value_dim=128,
            conv_taps=4,
            norm_eps=1e-6,
        )
        layout = StateLayout(
            num_layers=_LAYERS,
            num_heads=value_heads,
            key_dim=128,
            value_dim=128,
            conv_width=self.shape.conv_width,
            conv_history=3,
            dtype=DType.BFLOAT16,
        )
        self.backend.prepare_recurrent(self.shape, 2560, layout)
        self.states = self.backend.state_pool(layout, _MAX_ROWS)
        for part in (self.states.memory, self.states.conv):
            num_bytes = int(np.prod(part.shape)) * part.dtype.itemsize
            self.backend.device.fill(address(part), 0, num_bytes)
        self.library = NotingLibrary(self.backend.library)
        device = self.backend.device
        self.ops = CudaRecurrentOps(
            self.backend.ops, self.backend.cuda_products, device, self.library
        )  # type: ignore[arg-type]
        self.projected = self._tensor(_MAX_TOKENS, self.shape.projected_width)
        self.gated = self._tensor(_MAX_TOKENS, self.shape.value_width)
        self.weights = self._weights()
        self.workspace = self.backend.workspace(_MAX_TOKENS, _MAX_TOKENS)

    def table(self, name: str, rows: Sequence[tuple[int, int]]) -> None:
        """Print the kernels of a step with rows of (context, tokens)."""
        batch = self._batch(rows)
        self.library.noted.clear()
        for layer in range(_LAYERS):
            self._run(batch, layer)
        launches = self.library.noted[:]
        whole = self._us(lambda: [self._run(batch, layer) for layer in range(_LAYERS)])
        print(f"{name}: {whole:.1f} us a layer")
        num_decode = sum(count == 1 for _, count in rows)
        prompt_tokens = sum(count for _, count in rows if count > 1)
        for function in dict.fromkeys(launch.spec.function for launch in launches):
            own = [launch for launch in launches if launch.spec.function == function]
            us = self._us(lambda own=own: self._launch(own))  # type: ignore[misc]
            num_bytes, products = self._work(function, num_decode, prompt_tokens)
            limit = max(num_bytes / BYTES_A_S, products / PRODUCTS_A_S.get(function, np.inf)) * 1e6
            print(
                f"  {function:15} {us:8.2f} us, {num_bytes / 1e6:8.2f} MB "
                f"{num_bytes / us / 1e6:6.2f} TB/s, {products / us / 1e6:6.1f} TFLOP/s, "
                f"{100 * limit / us:5.1f} % of its limit"
            )

    def _work(self, function: str, num_decode: int, tokens: int) -> tuple[float, float]:
        """Bytes that must move, and operations of products, of one layer's launch."""
        shape, piece = self.shape, _PIECE
        conv, values, heads = shape.conv_width, shape.value_width, shape.num_value_heads
        k, v = shape.key_dim, shape.value_dim
        keys = 2 * shape.key_width
        by_head = {
            "relate_pieces": 2 * piece * 2 * k * shape.num_key_heads / heads,
            "write_pieces": 2 * piece * (k + v),
            "scan_pieces": 2 * (3 * k * v + piece * v),
        }
        num_bytes = {
            "conv_step": num_decode * 2 * conv * (2 + 6),
            "delta_step": num_decode * (8 * heads * k * v + 2 * conv + 4 * values),
            "conv_pieces": tokens * 4 * conv,
            "keep_inputs": 12 * conv,
            "relate_pieces": tokens * (4 * keys + heads * (6 * piece + 16)),
            "invert_pieces": tokens * heads * (8 * piece + 8),
            "write_pieces": tokens * (2 * values + keys + heads * (4 * piece + 2 * k + 4 * v)),
            "scan_pieces": tokens * (2 * keys + heads * (2 * piece + 2 * k + 6 * v + 12)),
            "gated_norm": tokens * 6 * values,
        }[function]
        return float(num_bytes), float(tokens * heads * by_head.get(function, 0))

    def _run(self, batch: Batch, layer: int) -> None:
        self.ops.gated_delta(
            batch, self.projected, self.weights, self.shape, self.states, layer, self.gated,
            self.workspace,
        )  # fmt: skip

    def _launch(self, launches: list[Launch]) -> None:
        stream = self.backend.device.stream
        for spec, grid, arguments in launches:
            self.backend.library.get(spec).launch(stream, grid, *arguments)

    def _us(self, work: Callable[[], object]) -> float:
        """Microseconds a layer."""
        device = self.backend.device
        work()
        recording = device.record(lambda: work() and None)
        recording.replay(device)
        first, last = Event(timing=True), Event(timing=True)
        first.record(device)
        for _ in range(_REPLAYS):
            recording.replay(device)
        last.record(device)
        last.wait()
        return 1e3 * last.ms_since(first) / _REPLAYS / _LAYERS

    def _batch(self, rows: Sequence[tuple[int, int]]) -> Batch:
        metadata = StepMetadata(_MAX_TOKENS, _MAX_ROWS, 1 << 17, 16, max_saves=16)
        for slot, (context, count) in enumerate(rows):
            pages = [1] * -(-context // 16)
            metadata.add_row([0] * count, context - count, pages, samples=True, slot=slot)
        metadata.finish(sum(count == 1 for _, count in rows))
        return self.backend.upload(metadata)

    def _tensor(self, *shape: int, scale: float = 1.0) -> Tensor:
        values = self.random.standard_normal(shape, np.float32) * np.float32(scale)
        return self.backend.adopt(
            (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32), DType.BFLOAT16
        )

    def _weights(self) -> DeltaWeights:
        heads = self.shape.num_value_heads
        adopt = self.backend.adopt
        nothing = self._tensor(1, 1)
        return DeltaWeights(
            input_norm=nothing,
            projection=nothing,
            conv=self._tensor(self.shape.conv_taps, self.shape.conv_width, scale=0.5),
            decay_rate=adopt(np.full(heads, -0.02, np.float32), DType.FLOAT32),
            decay_bias=adopt(np.zeros(heads, np.float32), DType.FLOAT32),
            norm=self._tensor(self.shape.value_dim),
            out=nothing,
        )


def main() -> None:
    """Decoding rows, then prompts."""
    key_heads, value_heads = (int(word) for word in sys.argv[1:3] or ("16", "32"))
    bench = DeltaBench(key_heads, value_heads)
    for rows in (1, 8, 16, 32, 64, 128, 256):
        bench.table(f"{rows} decoding", [(1000, 1)] * rows)
    for tokens in (128, 1024, 4096, 16_384):
        bench.table(f"a prompt of {tokens}", [(tokens, tokens)])
    bench.table("8 prompts of 1,000", [(1000, 1000)] * 8)


if __name__ == "__main__":
    main()
