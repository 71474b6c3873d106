"""How tensors are held on NumPy.

Weights and activations are float32 arrays whatever their type; a bfloat16 tensor holds values that
bfloat16 can represent. KV pages are dense: uint16 bits for bfloat16, float32 otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.backend.kv_pool import KvPool
    from pegainfer_core.backend.tensor import Tensor

    FloatArray = NDArray[np.float32]

_SIXTEEN: Final = np.array(16, np.uint32)


def floats(tensor: Tensor) -> FloatArray:
    """The array of a parameter or an activation."""
    return cast("FloatArray", tensor.storage)


def stored_pages(kv: KvPool) -> NDArray[np.uint16] | FloatArray:
    """The pages as they are stored: [num_pages, layers, 2, page_tokens, kv_heads, head_dim]."""
    return cast("NDArray[np.uint16] | FloatArray", kv.pages.storage)


def widen(stored: NDArray[np.uint16] | FloatArray, out: FloatArray) -> None:
    """Copy values of KV pages as float32."""
    if stored.dtype == np.uint16:
        np.left_shift(stored, _SIXTEEN, out=out.view(np.uint32), dtype=np.uint32)
    else:
        out[...] = stored


def bfloat16_bits(values: FloatArray) -> NDArray[np.uint16]:
    """The bits of bfloat16-representable values; a view of the array's high halves."""
    return values.view("<u2")[..., 1::2]
