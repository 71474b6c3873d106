"""Kernels of low-rank adapters."""

from __future__ import annotations

from itertools import product
from math import gcd
from typing import TYPE_CHECKING, Final

from pegainfer_core.kernels.catalog.fused import fused_specs
from pegainfer_core.kernels.catalog.sizes import OVERLAP_ARCH, count_type
from pegainfer_core.kernels.spec import KernelSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pegainfer_core.kernels.arch import Arch
    from pegainfer_core.kernels.catalog.sizes import ElementType

LORA_TILE: Final = 16
"""Tokens of one adapter that a program handles: as few as matrix units take at once."""

LORA_TILE_INTS: Final = 4
LORA_RANKS: Final = 16
"""Ranks that a program handles; slots have room for a multiple of it."""

LORA_OUTPUTS: Final = 64
_INNER_BLOCK: Final = 128
LORA_FEW_TOKENS: Final = 64
_LORA_SOME_TOKENS: Final = 2048
LORA_STEP_TOKENS: Final = (LORA_FEW_TOKENS, _LORA_SOME_TOKENS, _LORA_SOME_TOKENS + 1)
"""Numbers of tokens, one of each kind that inputs are cut for."""

_FEW_RANKS: Final = LORA_RANKS
"""Of more ranks there are more programs, and more sums for each block of outputs."""

_FEW_SPLIT_WIDTH, _SOME_SPLIT_WIDTH = 2 * _INNER_BLOCK, 1024
_FEWEST_SPLITS, _MOST_SPLITS = 4, 40


def lora_splits(width: int, num_tokens: int, rank: int) -> int:
    """Shares into which inputs of a width are cut: few tokens alone would leave a device idle.

    Args:
        width: Of the inputs.
        num_tokens: In the step.
        rank: That slots have room for.
    """
    if num_tokens > _LORA_SOME_TOKENS:
        return 1
    few = num_tokens <= LORA_FEW_TOKENS and rank <= _FEW_RANKS
    wide = _FEW_SPLIT_WIDTH if few else _SOME_SPLIT_WIDTH
    return min(max(-(-width // wide), _FEWEST_SPLITS), _MOST_SPLITS)


def lora_shrink(
    element: ElementType, width: int, splits: int, rank: int, *, overlaps: bool
) -> KernelSpec:
    """The product of inputs of a width with A, in so many shares, for slots of a rank."""
    pointer = f"*{element}:16"
    return KernelSpec(
        module="lora",
        function="lora_shrink",
        arguments=(
            *(pointer, pointer, "*fp32:16", "*i32", "*i32", "*i32", "*fp32:16"),
            *(count_type(width), "i32", "i32:16"),
        ),
        constants=(
            ("TILE", LORA_TILE),
            ("RANKS", LORA_RANKS),
            ("BLOCK", _INNER_BLOCK),
            ("SPLITS", splits),
            ("AHEAD", int(rank <= _FEW_RANKS)),
            ("OVERLAP", int(overlaps)),
        ),
        overlaps=overlaps,
    )


def lora_expand(
    element: ElementType, splits: int, outputs: Iterable[int], rank: int, *, overlaps: bool
) -> KernelSpec:
    """The product with B of what `lora_shrink` made, added to `out`.

    Args:
        element: Type of everything.
        splits: Shares that `lora_shrink` left.
        outputs: Of each part.
        rank: That slots have room for.
        overlaps: Whether it starts before the kernel ahead of it has ended.
    """
    pointer, count = f"*{element}:16", count_type(gcd(*outputs))
    return KernelSpec(
        module="lora",
        function="lora_expand",
        arguments=(
            *("*fp32:16", pointer, "*fp32:16", "*i32", "*i32", "*i32", pointer),
            *(count, "i32", "i32:16", count, count, count),
        ),
        constants=(
            ("TILE", LORA_TILE),
            ("RANKS", LORA_RANKS),
            ("BLOCK", LORA_OUTPUTS),
            ("SPLITS", splits),
            ("AHEAD", int(rank <= _FEW_RANKS)),
            ("OVERLAP", int(overlaps)),
        ),
        overlaps=overlaps,
    )


def lora_specs(
    element: ElementType, sites: Iterable[tuple[int, tuple[int, ...]]], hidden: int, arch: Arch
) -> list[KernelSpec]:
    """Kernels that steps with adapters launch beside those of `decoder_specs`.

    The activation is by itself there, so that what adapters add comes before it.

    Args:
        element: Type of weights and activations.
        sites: Width of the inputs, and outputs of each part, of all products.
        hidden: Width of those behind a norm.
        arch: Architecture.
    """
    specs, overlaps = [], arch >= OVERLAP_ARCH
    for width, outputs in sites:
        for tokens, rank in product(LORA_STEP_TOKENS, (_FEW_RANKS, _FEW_RANKS + 1)):
            splits = lora_splits(width, tokens, rank)
            specs.append(lora_shrink(element, width, splits, rank, overlaps=overlaps))
            specs.append(lora_expand(element, splits, outputs, rank, overlaps=overlaps))
        if width == hidden:
            specs += fused_specs(element, hidden, sum(outputs), arch, norm=True)
    return list(dict.fromkeys(specs))
