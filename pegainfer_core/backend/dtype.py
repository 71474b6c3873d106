"""Number formats of tensors. Knows no backend: a backend decides how it holds each of them."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


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


_ITEMSIZE: Final[Mapping[DType, int]] = {
    DType.FLOAT32: 4,
    DType.FLOAT16: 2,
    DType.BFLOAT16: 2,
}
