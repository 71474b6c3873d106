"""Our own products of a matrix and a few vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pegainfer_core.kernels.spec import KernelSpec

if TYPE_CHECKING:
    from pegainfer_core.kernels.catalog.sizes import ElementType

GEMV_BLOCK: Final = 512
GEMV_ROWS: Final = (1,)
"""Numbers of vectors that a matrix is multiplied with by our own kernel."""


def takes_gemv(k: int) -> bool:
    """Whether our own product of a few rows fits a width."""
    return k % GEMV_BLOCK == 0


def gemv(
    element: ElementType,
    k: int,
    rows: int,
    *,
    overlaps: bool,
    gated: bool = False,
    add: bool = False,
) -> KernelSpec:
    """A matrix times a few vectors."""
    pointer = f"*{element}:16"
    return KernelSpec(
        module="gemv",
        function="gemv",
        arguments=(*(pointer,) * 3, "i32"),
        constants=(
            ("CHUNKS", k // GEMV_BLOCK),
            ("BLOCK", GEMV_BLOCK),
            ("ROWS", rows),
            ("GATED", int(gated)),
            ("ADD", int(add)),
            ("OVERLAP", int(overlaps)),
        ),
        num_warps=2,
        overlaps=overlaps,
    )
