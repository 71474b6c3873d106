"""Between float32 arrays and the number formats that checkpoints store.

Knows no file and no tensor name. Everything works in chunks that stay in a core's cache, so that
no temporary of a tensor's size is ever made.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from pegainfer_core.weights.config import FloatType

__all__ = [
    "BYTES_PER_VALUE",
    "FloatArray",
    "decode_floats",
    "encode_floats",
    "round_floats",
]

FloatArray = npt.NDArray[np.float32]

BYTES_PER_VALUE: Final = {"bfloat16": 2, "float16": 2, "float32": 4}

_STORED: Final = {"bfloat16": "<u2", "float16": "<f2", "float32": "<f4"}
_CHUNK_VALUES: Final = 1 << 18


def decode_floats(raw: npt.NDArray[np.uint8], dtype: FloatType, out: FloatArray) -> None:
    """Widen stored values to float32.

    Args:
        raw: The stored bytes, little endian, 1-D; need not be aligned.
        dtype: How they are stored.
        out: 1-D, one element a value.
    """
    stored = raw.view(_STORED[dtype])
    for part in _chunks(out.size):
        if dtype == "bfloat16":
            bits = out[part].view(np.uint32)
            bits[...] = stored[part]
            bits <<= np.uint32(16)
        else:
            out[part] = stored[part]


def encode_floats(values: FloatArray, dtype: FloatType) -> npt.NDArray[np.uint8]:
    """The bytes that store `values`, rounded to nearest even; 1-D, little endian."""
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    if dtype == "float32":
        return flat.astype("<f4").view(np.uint8)
    if dtype == "float16":
        return flat.astype("<f2").view(np.uint8)
    stored = np.empty(flat.size, "<u2")
    for part in _chunks(flat.size):
        chunk = flat[part].copy()
        _round_bfloat16(chunk)
        stored[part] = chunk.view(np.uint32) >> np.uint32(16)
    return stored.view(np.uint8)


def round_floats(values: FloatArray, dtype: FloatType) -> None:
    """Round in place to values that `dtype` holds, to nearest even. Not-a-number stays so.

    Args:
        values: Any shape, C-contiguous.
        dtype: float32 leaves the values alone.

    Raises:
        ValueError: `values` is not contiguous.
    """
    if not values.flags.c_contiguous:
        raise ValueError("only a contiguous array can be rounded in place")
    flat = values.reshape(-1)
    for part in _chunks(flat.size if dtype != "float32" else 0):
        if dtype == "bfloat16":
            _round_bfloat16(flat[part])
        else:
            flat[part] = flat[part].astype(np.float16)


def _round_bfloat16(chunk: FloatArray) -> None:
    bits = chunk.view(np.uint32)
    not_a_number = np.isnan(chunk)
    # Half of the last kept bit, less one unless that bit is odd: ties go to even.
    half = bits >> np.uint32(16)
    half &= np.uint32(1)
    half += np.uint32(0x7FFF)
    bits += half
    bits &= np.uint32(0xFFFF0000)
    if not_a_number.any():
        # The carry above may have run into the sign.
        chunk[not_a_number] = np.nan


def _chunks(size: int) -> Iterator[slice]:
    return (slice(start, start + _CHUNK_VALUES) for start in range(0, size, _CHUNK_VALUES))
