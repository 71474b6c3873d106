"""Kernels that make seeded values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pegainfer_core.kernels.spec import KernelSpec

if TYPE_CHECKING:
    from pegainfer_core.kernels.catalog.sizes import ElementType

SEEDED_BLOCK: Final = 256


def fill_quantiles(element: ElementType) -> KernelSpec:
    """Seeded random values."""
    pointer = f"*{element}"
    return KernelSpec(
        module="seeded",
        function="fill_quantiles",
        arguments=(pointer, pointer, "u64", "i64"),
        constants=(("BLOCK", SEEDED_BLOCK),),
    )
