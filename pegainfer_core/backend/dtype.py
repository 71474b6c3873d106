"""Number formats of tensors. Knows no backend: a backend decides how it holds each of them."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pegainfer_core.weights import FloatType


class DType(enum.Enum):
    """A number format, by the name that checkpoints use.

    Rounding to it is to nearest, ties to even.
    """

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"

    @property
    def itemsize(self) -> int:
        """Bytes of one value where it is stored densely (KV pages, device memory, files)."""
        return _ITEMSIZE[self]


def planned_dtype(stored: FloatType | None) -> DType:
    """Type of KV and activations before a backend is there to ask.

    float16 checkpoints are computed in float32.

    Args:
        stored: What config.json says; None leaves it to the tensors, and float32 is planned for.
    """
    return DType.BFLOAT16 if stored == "bfloat16" else DType.FLOAT32


_ITEMSIZE: Final[Mapping[DType, int]] = {
    DType.FLOAT32: 4,
    DType.FLOAT16: 2,
    DType.BFLOAT16: 2,
}
