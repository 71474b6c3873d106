"""Times the matrix products of a decode step of Qwen3-4B: `bench_products.py [ROWS ...]`.

Each product alone, in a recorded chain over the matrices of 36 layers (far more than the L2 cache
holds), and the four of a layer as the chain they are in a step: our own kernel with its norm,
activation or sum, and cuBLASLt's product, which has the sum but neither norm nor activation.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pegainfer_core.backend import DType
from pegainfer_core.backend.cuda.device import Device, Event, host_address
from pegainfer_core.backend.cuda.library import KernelLibrary
from pegainfer_core.backend.cuda.products import Products, ProductShape
from pegainfer_core.kernels import catalog

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.backend.cuda.device import DeviceMemory

NUM_LAYERS = 36
PATTERN_VALUES = 32 << 20


class Product(NamedTuple):
    """`n` outputs of the matrix [`n`, `k`], twice as many rows when it is gated."""

    n: int
    k: int
    norm: bool = False
    gated: bool = False
    add: bool = False

    @property
    def matrix_rows(self) -> int:
        """Of the matrix."""
        return self.n * (1 + self.gated)

    @property
    def num_bytes(self) -> int:
        """Of the matrix."""
        return 2 * self.matrix_rows * self.k


PRODUCTS = {
    "qkv": Product(6144, 2560, norm=True),
    "out": Product(2560, 4096, add=True),
    "gate_up": Product(9728, 2560, norm=True, gated=True),
    "down": Product(2560, 9728, add=True),
}


class Bench:
    """Random matrices of all layers, and rows to multiply them with."""

    def __init__(self) -> None:
        self.device = Device()
        self.library = KernelLibrary(self.device.arch)
        self.lt = Products(self.device)
        self.weights = {
            name: [self._random(p.matrix_rows * p.k, p.k**-0.5) for _ in range(NUM_LAYERS)]
            for name, p in PRODUCTS.items()
        }
        self.wide = self._random(64 * 19456, 1.0)
        self.hidden = self._random(64 * 2560, 1.0)
        self.scale = self._random(9728, 1.0)
        self.out = self._random(64 * 19456, 1.0)
        self.inner = self._random(64 * 9728, 1.0)
        self.barrier = self.device.allocate(8)
        self.device.fill(self.barrier.address, 0, 8)

    def own(self, names: tuple[str, ...], layer: int, num_rows: int, **changes: int) -> None:
        """Launch our own kernel for some of the products."""
        widths = catalog.LayerWidths(
            query=4096 * ("out" in names),
            hidden=2560,
            inner=9728 * ("down" in names or "gate_up" in names),
            gate_up="gate_up" in names,
            down="down" in names,
            qkv=6144 * ("qkv" in names),
        )
        spec = catalog.layer_products(widths, num_rows, self.device.arch, **changes)
        kernel = self.library.get(spec)
        weights = [self.weights[name][layer].address for name in ("out", "gate_up", "down", "qkv")]
        grid = kernel.num_clusters(dict(spec.constants)["SPLIT"]) * dict(spec.constants)["SPLIT"]
        kernel.launch(
            self.device.stream, (grid, 1), self.wide.address, self.hidden.address,
            self.inner.address, self.out.address, *weights, self.scale.address,
            self.scale.address, self.barrier.address, num_rows, 1e-6, 1e-6,
        )  # fmt: skip

    def others(self, name: str, layer: int, num_rows: int) -> None:
        """Launch cuBLASLt's."""
        p = PRODUCTS[name]
        shape = ProductShape(num_rows, p.matrix_rows, p.k, DType.BFLOAT16, DType.BFLOAT16, p.add)
        x = self.hidden if p.norm else self.wide
        out = self.hidden if p.add else self.out
        self.lt.run(shape, x.address, self.weights[name][layer].address, out.address)

    def micros(self, work: Callable[[int], None], repeats: int = 5) -> float:
        """Microseconds of `work(layer)`, recorded over all layers."""
        for layer in range(2):
            work(layer)
        self.device.synchronize()
        recording = self.device.record(lambda: [work(i) for i in range(NUM_LAYERS)] and None)
        recording.replay(self.device)
        first, last = Event(timing=True), Event(timing=True)
        first.record(self.device)
        for _ in range(repeats):
            recording.replay(self.device)
        last.record(self.device)
        last.wait()
        return 1e3 * last.ms_since(first) / repeats / NUM_LAYERS

    def _random(self, num_values: int, deviation: float) -> DeviceMemory:
        if not hasattr(self, "_pattern"):
            values = np.random.default_rng(0).standard_normal(PATTERN_VALUES, np.float32)
            self._values = values
            self._pattern: dict[float, DeviceMemory] = {}
        if deviation not in self._pattern:
            scaled = np.ascontiguousarray((self._values * deviation).view(np.uint16)[1::2])
            held = self.device.allocate(scaled.nbytes)
            self.device.upload(held.address, host_address(scaled), scaled.nbytes)
            self.device.synchronize()
            self._pattern[deviation] = held
        memory = self.device.allocate(2 * num_values)
        pattern = self._pattern[deviation]
        for start in range(0, 2 * num_values, pattern.num_bytes):
            size = min(pattern.num_bytes, 2 * num_values - start)
            self.device.copy(memory.address + start, pattern.address, size)
        return memory


def line(label: str, times: dict[str, float]) -> str:
    """One row of the table."""
    cells = []
    for name, micros in times.items():
        num_bytes = sum(PRODUCTS[part].num_bytes for part in name.split("+"))
        cells.append(f"{name} {micros:5.1f} ({num_bytes / micros / 1e6:4.2f})")
    return f"{label:22} {'  '.join(cells)}"


LAUNCHES = ("qkv", "out", "gate_up+down", "out+gate_up+down", "out+gate_up+down+qkv")
"""What a step has in one launch, and parts of it."""


def measure_own(
    bench: Bench, rows: int, label: str, launches: tuple[str, ...] = LAUNCHES, **changes: int
) -> str:
    """Some launches of our own kernel."""
    times = {}
    for name in launches:
        names = tuple(name.split("+"))
        times[name] = bench.micros(lambda layer, n=names: bench.own(n, layer, rows, **changes))
    return line(f"{rows} rows, {label}", times)


def measure_others(bench: Bench, rows: int) -> str:
    """Each product, and all four."""

    def chain(names: tuple[str, ...]) -> float:
        return bench.micros(lambda layer: [bench.others(n, layer, rows) for n in names] and None)

    times = {name: chain((name,)) for name in PRODUCTS}
    times["+".join(PRODUCTS)] = chain(tuple(PRODUCTS))
    return line(f"{rows} rows, cuBLASLt", times)


def main() -> int:
    bench = Bench()
    for rows in [int(text) for text in sys.argv[1:]] or [1, 8, 16, 32]:
        print(measure_own(bench, rows, "own"))
        print(measure_others(bench, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
