"""What a matrix product is, for whoever plans, times or runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pegainfer_core.backend.dtype import DType


class ProductShape(NamedTuple):
    """`out` [rows, n] = `x` [rows, k] @ `weight`^T [n, k], plus `out` where it accumulates."""

    rows: int
    n: int
    k: int
    operands: DType
    result: DType
    accumulate: bool
