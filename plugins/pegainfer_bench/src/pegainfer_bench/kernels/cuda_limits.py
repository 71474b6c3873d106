"""Memory rates of a GPU, by a kernel that only reads and by the driver's copy. Needs CuPy."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import cupy
import numpy as np

from pegainfer_core.weights import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

_BYTES: Final = 2 << 30
"""Many times the largest cache."""

_ROUNDS: Final = 10
_BLOCKS_A_MULTIPROCESSOR: Final = (4, 8, 16, 32)
_THREADS: Final = 512
_KIND: Final = 3
"""Of a copy: from device to device."""

_SOURCE: Final = r"""
extern "C" __global__ void read_all(const uint4* data, unsigned int* out, long long count)
{
    const long long step = (long long)gridDim.x * blockDim.x;
    unsigned int mixed = 0;
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * step < count; i += 4 * step) {
        const uint4 a = data[i], b = data[i + step], c = data[i + 2 * step], d = data[i + 3 * step];
        mixed ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w;
        mixed ^= c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
    }
    for (; i < count; i += step) mixed ^= data[i].x ^ data[i].y ^ data[i].z ^ data[i].w;
    // Never true of the data, but the compiler cannot know: no load may be left out.
    if (mixed == 0x9e3779b9u) *out = mixed;
}
"""


def memory_rates(ordinal: int) -> tuple[str, float | None, float]:
    """Name of a GPU, and the bytes a second that it reads, and copies (read plus written).

    The first rate is None where the reading kernel cannot be compiled, for want of NVRTC.

    Raises:
        ConfigError: The buffers do not fit into its memory.
    """
    with cupy.cuda.Device(ordinal):
        facts = cupy.cuda.runtime.getDeviceProperties(ordinal)
        try:
            source, target = (_words(cupy.cuda.Memory(_BYTES)) for _ in range(2))
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise ConfigError(
                f"GPU {ordinal}: {2 * _BYTES / 2**30:.0f} GiB for measuring cannot be had ({error})"
            ) from error
        stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.runtime.memsetAsync(source.data.ptr, 0x5A, _BYTES, stream.ptr)
        kernel = cupy.RawKernel(_SOURCE, "read_all")
        multiprocessors = int(facts["multiProcessorCount"])

        def read(blocks: int) -> None:
            kernel((blocks,), (_THREADS,), (source, target, np.int64(_BYTES // 16)))

        def copy() -> None:
            cupy.cuda.runtime.memcpyAsync(
                target.data.ptr, source.data.ptr, _BYTES, _KIND, stream.ptr
            )

        with stream:
            grids = [multiprocessors * count for count in _BLOCKS_A_MULTIPROCESSOR]
            copy_s = _best_s(copy, stream)
            try:
                kernel.compile()
            except (cupy.cuda.compiler.CompileException, RuntimeError) as error:
                # A library that is not found is a RuntimeError, and so is a device that fails.
                if isinstance(error, cupy.cuda.runtime.CUDARuntimeError):
                    raise
                read_rate = None
            else:
                read_rate = _BYTES / min(_best_s(partial(read, grid), stream) for grid in grids)
    return facts["name"].decode(), read_rate, 2 * _BYTES / copy_s


def _words(memory: object) -> cupy.ndarray:
    """All of an allocation, outside of CuPy's pool, so that it is given back at the end."""
    pointer = cupy.cuda.MemoryPointer(memory, 0)
    return cupy.ndarray((_BYTES // 4,), np.uint32, memptr=pointer)


def _best_s(work: Callable[[], None], stream: object) -> float:
    """Seconds of the fastest of several runs, by events of the stream that is current."""
    best_ms = float("inf")
    for _ in range(_ROUNDS + 1):
        first, last = cupy.cuda.Event(), cupy.cuda.Event()
        first.record(stream)
        work()
        last.record(stream)
        last.synchronize()
        best_ms = min(best_ms, float(cupy.cuda.get_elapsed_time(first, last)))
    return best_ms / 1e3
