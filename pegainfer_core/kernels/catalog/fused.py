"""Every variant of our own products that a matrix of a model may meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.kernels.catalog.few_rows import FEW_ROWS, few_rows, takes_few_rows
from pegainfer_core.kernels.catalog.products import GEMV_ROWS, gemv, takes_gemv
from pegainfer_core.kernels.catalog.sizes import OVERLAP_ARCH

if TYPE_CHECKING:
    from pegainfer_core.kernels.arch import Arch
    from pegainfer_core.kernels.catalog.sizes import ElementType
    from pegainfer_core.kernels.spec import KernelSpec


def fused_specs(
    element: ElementType,
    k: int,
    n: int,
    arch: Arch,
    *,
    norm: bool = False,
    gated: bool = False,
    add: bool = False,
    scale: ElementType = "bf16",
) -> list[KernelSpec]:
    """For few rows, or one at a time where those do not run.

    Args:
        element: Type of rows and matrix.
        k: Width of the rows.
        n: Outputs.
        arch: Where.
        norm: The rows are normed first.
        gated: The matrix holds gate rows, then up rows; the output is the gated activation.
        add: The output is added to.
        scale: Type of the norm's weights.
    """
    if takes_few_rows(element, k, n, arch):
        return [few_rows(k, r, norm=norm, gated=gated, add=add, scale=scale) for r in FEW_ROWS]
    if takes_gemv(k):
        overlaps = arch >= OVERLAP_ARCH
        return [gemv(element, k, rows, overlaps=overlaps, gated=gated, add=add)
                for rows in GEMV_ROWS]  # fmt: skip
    return []
