"""What a device can do at most, measured on it: reading, copying, multiplying."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from pegainfer_core.weights import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_bench.kernels.decoder import DecoderBench

_HOST_BYTES: Final = 128 << 20
_BLOCK_VALUES: Final = 1 << 18
_ROUNDS: Final = 4
_PRODUCTS: Final = {"cuda": (4096, 8192), "numpy": (512, 1024)}
"""Rows of square products that the matrix rate is taken from; the fastest counts."""


class DeviceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of a device.

    Attributes:
        device: Its name.
        read_bytes_per_s: Reading memory that no cache holds.
        read_by: What read it.
        copy_bytes_per_s: Copying it: bytes read and bytes written, added.
        flops_per_s: Of a large product in the type that the model computes in.
    """

    device: str
    read_bytes_per_s: float
    read_by: str
    copy_bytes_per_s: float
    flops_per_s: float

    def limit_s(self, num_bytes: float, flops: float) -> float:
        """The least time for so many bytes and floating-point operations."""
        return max(num_bytes / self.read_bytes_per_s, flops / self.flops_per_s)


def measure_limits(bench: DecoderBench) -> DeviceLimits:
    """Measure the device of a bench's backend.

    Raises:
        ConfigError: There is too little memory.
    """
    if bench.backend.name == "cuda":
        from pegainfer_bench.kernels.cuda_limits import memory_rates

        device, found, copy = memory_rates(bench.device)
        read, read_by = (found, "a kernel that only reads") if found else _by_an_op(bench, copy)
    else:
        device, read, copy = _host_rates(bench.num_threads)
        read_by = "NumPy"
    sizes = _PRODUCTS[bench.backend.name]
    flops = max(2 * size**3 / bench.time_product(size) for size in sizes)
    return DeviceLimits(
        device=device,
        read_bytes_per_s=read,
        read_by=read_by,
        copy_bytes_per_s=copy,
        flops_per_s=flops,
    )


def _by_an_op(bench: DecoderBench, copy_rate: float) -> tuple[float, str]:
    """The read rate of the op that reads most and writes least; a copy's is a lower bound."""
    rate = bench.read_rate()
    if rate > copy_rate:
        return rate, "argmax, as NVRTC is missing"
    return copy_rate, "a copy, as NVRTC is missing"


def _host_rates(num_threads: int | None) -> tuple[str, float, float]:
    """Name, read rate and copy rate of this machine's memory."""
    threads = num_threads or len(os.sched_getaffinity(0))
    try:
        source = np.ones(_HOST_BYTES // 4, np.float32)
        target = np.ones(_HOST_BYTES // 4, np.float32)
    except MemoryError as error:
        raise ConfigError(f"{2 * _HOST_BYTES >> 20} MiB for measuring cannot be had") from error
    parts = list(zip(np.array_split(source, threads), np.array_split(target, threads), strict=True))
    with ThreadPoolExecutor(threads) as pool:

        def read(part: int) -> None:
            values = parts[part][0]
            for start in range(0, len(values), _BLOCK_VALUES):
                values[start : start + _BLOCK_VALUES].max()

        def copy(part: int) -> None:
            np.copyto(parts[part][1], parts[part][0])

        read_s = _best_s(lambda: list(pool.map(read, range(threads))))
        copy_s = _best_s(lambda: list(pool.map(copy, range(threads))))
    name = f"this machine's processor, {threads} threads"
    return name, _HOST_BYTES / read_s, 2 * _HOST_BYTES / copy_s


def _best_s(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(_ROUNDS):
        started_s = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started_s)
    return best
