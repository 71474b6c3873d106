"""Kernels over whole rows: gather, norm, activation, sum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pegainfer_core.kernels.catalog.sizes import count_type, tile_width
from pegainfer_core.kernels.spec import KernelSpec

if TYPE_CHECKING:
    from pegainfer_core.kernels.catalog.sizes import ElementType

SMALL_BLOCK: Final = 1024
"""Values a program of an elementwise kernel handles."""


def take_rows(element: ElementType, width: int) -> KernelSpec:
    """`out`[i] = `source`[indices[i]]."""
    pointer = f"*{element}:16"
    return KernelSpec(
        module="rows",
        function="take_rows",
        arguments=(pointer, "*i32", pointer, count_type(width)),
        constants=(("BLOCK", SMALL_BLOCK),),
    )


def rms_norm(
    element: ElementType, width: int, *, overlaps: bool, weight: ElementType | None = None
) -> KernelSpec:
    """RMSNorm of whole rows; weights are of another type where `weight` says so."""
    pointer, scale = f"*{element}:16", f"*{weight or element}:16"
    block = tile_width(width)
    return KernelSpec(
        module="rows",
        function="rms_norm",
        arguments=(pointer, scale, pointer, count_type(width), "fp32"),
        constants=(("BLOCK", block), ("OVERLAP", int(overlaps))),
        num_warps=min(max(block // 512, 1), 16),
        overlaps=overlaps,
    )


def silu_mul(element: ElementType, width: int) -> KernelSpec:
    """The gated activation."""
    pointer = f"*{element}:16"
    return KernelSpec(
        module="rows",
        function="silu_mul",
        arguments=(pointer, pointer, count_type(width)),
        constants=(("BLOCK", SMALL_BLOCK),),
    )


def add_rows(element: ElementType) -> KernelSpec:
    """`out` += `x`."""
    pointer = f"*{element}:16"
    return KernelSpec(
        module="rows",
        function="add_rows",
        arguments=(pointer, pointer, "i64"),
        constants=(("BLOCK", SMALL_BLOCK),),
    )
