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

# 0-d arrays: NumPy turns Python and NumPy scalars into these on every call, which costs more than
# the arithmetic on a short row.
_ONE_BIT = np.array(1, np.uint32)
_HALF_LESS_ONE = np.array(0x7FFF, np.uint32)
_HIGH_HALF = np.array(0xFFFF0000, np.uint32)
_SIXTEEN = np.array(16, np.uint32)
_CHUNK_VALUES = 1 << 16


def floats(tensor: Tensor) -> FloatArray:
    """The array of a parameter or an activation."""
    return cast("FloatArray", tensor.storage)


def stored_pages(kv: KvPool) -> NDArray[np.uint16] | FloatArray:
    """The pages as they are stored: [num_pages, layers, 2, page_tokens, kv_heads, head_dim]."""
    return cast("NDArray[np.uint16] | FloatArray", kv.pages.storage)


def round_to(values: FloatArray, dtype: DType) -> None:
    """Round a C-contiguous array in place to values that `dtype` holds, ties to even."""
    if dtype is not DType.BFLOAT16:
        return
    bits = values.reshape(-1).view(np.uint32)
    if bits.size <= _CHUNK_VALUES:
        _round_bits(bits)
        return
    # Chunks that stay in a core's cache: the five passes below then cost little more than one.
    for start in range(0, bits.size, _CHUNK_VALUES):
        _round_bits(bits[start : start + _CHUNK_VALUES])


def _round_bits(bits: NDArray[np.uint32]) -> None:
    # Add half of the last kept bit, less one unless that bit is odd. A NaN stays one: those that
    # arithmetic on bfloat16 values makes have empty low halves, so the carry cannot run over.
    half = np.right_shift(bits, _SIXTEEN)
    np.bitwise_and(half, _ONE_BIT, out=half)
    np.add(half, _HALF_LESS_ONE, out=half)
    np.add(bits, half, out=bits)
    np.bitwise_and(bits, _HIGH_HALF, out=bits)


def widen_bfloat16(bits: NDArray[np.uint16], out: FloatArray) -> None:
    """Turn stored bfloat16 bits into float32, element by element."""
    np.left_shift(bits, _SIXTEEN, out=out.view(np.uint32), dtype=np.uint32)


def bfloat16_bits(values: FloatArray) -> NDArray[np.uint16]:
    """The bits of bfloat16-representable values; a view of the array's high halves."""
    return values.view("<u2")[..., 1::2]
