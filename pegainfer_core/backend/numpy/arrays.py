"""How tensors are held on NumPy, and rounding to bfloat16.

Weights and activations are float32 arrays whatever their type; a bfloat16 tensor holds values that
bfloat16 can represent. KV pages are dense: uint16 bits for bfloat16, float32 otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from pegainfer_core.backend.dtype import DType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.backend.kv_pool import KvPool
    from pegainfer_core.backend.tensor import Tensor

    FloatArray = NDArray[np.float32]

# 0-d arrays: NumPy makes one of a Python or NumPy scalar on every call.
_SIXTEEN = np.array(16, np.uint32)
_SPLITTER = np.array(2**16 + 1, np.float32)
_CHUNK_VALUES = 1 << 16


def floats(tensor: Tensor) -> FloatArray:
    """The array of a parameter or an activation."""
    return cast("FloatArray", tensor.storage)


def stored_pages(kv: KvPool) -> NDArray[np.uint16] | FloatArray:
    """The pages as they are stored: [num_pages, layers, 2, page_tokens, kv_heads, head_dim]."""
    return cast("NDArray[np.uint16] | FloatArray", kv.pages.storage)


def round_to(values: FloatArray, dtype: DType) -> None:
    """Round in place to values that `dtype` holds, ties to even.

    Args:
        values: Any strides. Magnitudes below 2^111; larger ones come out as not-a-number.
        dtype: float32 leaves the values alone.
    """
    if dtype is not DType.BFLOAT16:
        return
    if values.size <= _CHUNK_VALUES:
        _round_bfloat16(values)
        return
    # Chunks that stay in a core's cache: three passes then cost little more than one.
    step = max(_CHUNK_VALUES * len(values) // values.size, 1)
    for start in range(0, len(values), step):
        _round_bfloat16(values[start : start + step])


def _round_bfloat16(values: FloatArray) -> None:
    # Dekker's splitting at bit 16: what the first product loses to rounding is just the low half.
    # Three passes in place of five on the bits; a test goes through every significand.
    scaled = np.multiply(values, _SPLITTER)
    np.subtract(values, scaled, out=values)
    np.add(values, scaled, out=values)


def widen(stored: NDArray[np.uint16] | FloatArray, out: FloatArray) -> None:
    """Copy values of KV pages as float32."""
    if stored.dtype == np.uint16:
        np.left_shift(stored, _SIXTEEN, out=out.view(np.uint32), dtype=np.uint32)
    else:
        out[...] = stored


def bfloat16_bits(values: FloatArray) -> NDArray[np.uint16]:
    """The bits of bfloat16-representable values; a view of the array's high halves."""
    return values.view("<u2")[..., 1::2]
