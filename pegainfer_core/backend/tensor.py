"""Core's own tensor: what model code may hold and pass on, and nothing else.

There are no operators and no indexing, so that a forward can only be written in backend ops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegainfer_core.backend.dtype import DType


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A dense array on a backend.

    Attributes:
        shape: Extents.
        dtype: Number format of the values. How they are held is the backend's business: NumPy
            holds bfloat16 weights and activations as float32 with bfloat16-representable values.
        storage: The backend's own handle; opaque to everyone else.
    """

    shape: tuple[int, ...]
    dtype: DType
    storage: object

    @property
    def width(self) -> int:
        """Extent of the last axis."""
        return self.shape[-1]
