"""Reproducible random values, drawn by quantile tables from a stream keyed by seed and name.

A value is one of the 65,536 equally likely quantiles of its distribution, picked by 16 bits of a
Philox stream. Philox's bits are the same everywhere, and a table is rounded from float64, so equal
seeds give equal tensors on every machine, with any number of threads and any NumPy; a draw costs
one table look-up, already rounded to the stored type. Knows no tensor's role.
"""

import hashlib
from collections.abc import Iterator
from functools import cache, lru_cache
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

from pegainfer_core.weights.config import FloatType
from pegainfer_core.weights.float_convert import FloatArray, round_floats

__all__ = [
    "BLOCK_VALUES",
    "fill_block",
    "normal_table",
    "num_blocks",
    "stream_key",
    "uniform_table",
]

#: Values that share a stream, so that blocks can be drawn by different threads.
BLOCK_VALUES: Final = 1 << 20
#: Values drawn at once; their indices and bits stay in a core's cache.
_DRAW_VALUES: Final = 1 << 15
_QUANTILES: Final = 1 << 16


@lru_cache(maxsize=16)
def normal_table(mean: float, std: float, dtype: FloatType) -> FloatArray:
    """Quantiles of a normal distribution, rounded to `dtype`; it ends at 4.2 deviations."""
    return _rounded(mean + std * _standard_normal(), dtype)


@lru_cache(maxsize=16)
def uniform_table(low: float, high: float, dtype: FloatType) -> FloatArray:
    """Quantiles of a uniform distribution, rounded to `dtype`."""
    share = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    return _rounded(low + (high - low) * share, dtype)


def num_blocks(num_values: int) -> int:
    """How many streams a tensor of this size is drawn from."""
    return -(-num_values // BLOCK_VALUES)


def stream_key(seed: int, name: str) -> int:
    """First word, 64 bits, of the Philox key of a tensor's streams; the second is the block."""
    digest = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def fill_block(out: FloatArray, table: FloatArray, seed: int, name: str, block: int) -> None:
    """Draw one block of a tensor.

    Args:
        out: The block, 1-D and contiguous: values `block * BLOCK_VALUES` on of the flat tensor, at
            most `BLOCK_VALUES` of them.
        table: From `normal_table` or `uniform_table`.
        seed: Any integer.
        name: The tensor's name.
        block: Number of the block in the tensor.
    """
    key = np.array([stream_key(seed, name), block], np.uint64)
    bits = np.random.Philox(key=key)
    picks = np.empty(min(_DRAW_VALUES, out.size), np.intp)
    for part in _parts(out.size):
        size = part.stop - part.start
        drawn = bits.random_raw(-(-size // 4)).astype("<u8", copy=False).view("<u2")
        picks[:size] = drawn[:size]
        # "clip" lets take() write straight into `out`; no pick is out of range.
        np.take(table, picks[:size], out=out[part], mode="clip")


def _parts(size: int) -> Iterator[slice]:
    return (slice(start, min(start + _DRAW_VALUES, size)) for start in range(0, size, _DRAW_VALUES))


@cache
def _standard_normal() -> npt.NDArray[np.float64]:
    inverse = NormalDist().inv_cdf
    upper = [inverse((i + 0.5) / _QUANTILES) for i in range(_QUANTILES // 2, _QUANTILES)]
    half = np.array(upper)
    return np.concatenate([-half[::-1], half])


def _rounded(quantiles: npt.NDArray[np.float64], dtype: FloatType) -> FloatArray:
    table = quantiles.astype(np.float32)
    round_floats(table, dtype)
    table.flags.writeable = False
    return table
