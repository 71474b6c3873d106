"""Kernels of low-rank adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pegainfer_core.kernels.catalog.products import GEMV_ROWS, gemv, takes_gemv
from pegainfer_core.kernels.catalog.sizes import OVERLAP_ARCH
from pegainfer_core.kernels.spec import KernelSpec

if TYPE_CHECKING:
    from pegainfer_core.kernels.arch import Arch
    from pegainfer_core.kernels.catalog.sizes import ElementType

LORA_TILE: Final = 16
"""Tokens of one adapter that a program handles: as few as matrix units take at once."""

LORA_TILE_INTS: Final = 4
LORA_RANKS: Final = 16
"""Ranks that a program handles; slots have room for a multiple of it."""

LORA_SPLITS: Final = 4
"""Shares into which the inner dimension of the first product is cut, to keep a device busy."""

LORA_OUTPUTS: Final = 64
_INNER_BLOCK: Final = 128


def lora_shrink(element: ElementType) -> KernelSpec:
    """The product with A, in shares."""
    pointer = f"*{element}:16"
    return KernelSpec(
        module="lora",
        function="lora_shrink",
        arguments=(
            *(pointer, pointer, "*fp32:16", "*i32", "*i32", "*i32", "*fp32:16"),
            *("i32", "i32", "i32:16"),
        ),
        constants=(
            ("TILE", LORA_TILE),
            ("RANKS", LORA_RANKS),
            ("BLOCK", _INNER_BLOCK),
            ("SPLITS", LORA_SPLITS),
        ),
    )


def lora_expand(element: ElementType) -> KernelSpec:
    """The product with B, added to what is there."""
    pointer = f"*{element}:16"
    return KernelSpec(
        module="lora",
        function="lora_expand",
        arguments=(
            *("*fp32:16", pointer, "*fp32:16", "*i32", "*i32", "*i32", pointer),
            *("i32", "i32", "i32:16", "i32", "i32", "i32"),
        ),
        constants=(
            ("TILE", LORA_TILE),
            ("RANKS", LORA_RANKS),
            ("BLOCK", LORA_OUTPUTS),
            ("SPLITS", LORA_SPLITS),
        ),
    )


def lora_specs(element: ElementType, hidden: int, arch: Arch) -> list[KernelSpec]:
    """Kernels that steps with adapters launch beside those of `decoder_specs`.

    Products behind a norm stand alone there, so that what adapters add comes in between.
    """
    specs = [lora_shrink(element), lora_expand(element)]
    if takes_gemv(hidden):
        overlaps = arch >= OVERLAP_ARCH
        specs += [gemv(element, hidden, rows, overlaps=overlaps) for rows in GEMV_ROWS]
    return specs
