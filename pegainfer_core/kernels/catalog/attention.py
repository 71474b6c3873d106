"""Kernels between a QKV product and the output projection."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from pegainfer_core.kernels.catalog.sizes import count_type, power_of_two, promise, tile_width
from pegainfer_core.kernels.spec import KernelSpec

if TYPE_CHECKING:
    from pegainfer_core.kernels.arch import Arch
    from pegainfer_core.kernels.catalog.sizes import ElementType

DECODE_BLOCK: Final = 64
"""Positions a step of the decode attention takes; parts of contexts are multiples of it."""

PREPARED_HEADS: Final = 8
"""Heads that a program prepares at a time."""

DECODE_ITEM_INTS: Final = 8
"""Values that describe a part of a context; the kernels' sources say which."""

DECODE_PAGE_KEYS: Final = 16
"""Keys that one bulk copy of the decode attention brings; also most query heads a key head."""

DECODE_PAGES_ARCH: Final = 90
"""Where decode attention copies pages in bulk; measured on this one alone."""

_PAGES_HEAD_DIMS: Final = (64, 128, 256)
_PAGES_WARPS: Final = 4
_PAGES_STAGES: Final = 3
_PAGES_RESERVE: Final = 1024


@cache
def prepare_heads(
    element: ElementType,
    head_dim: int,
    half: int,
    page_tokens: int,
    *,
    norm: bool,
    rope: bool,
    write: bool,
    weight: ElementType | None = None,
) -> KernelSpec:
    """Norm, RoPE and KV write, or some; the norm's weights may be of another type."""
    pointer = f"*{element}:16"
    return KernelSpec(
        module="heads",
        function="prepare_heads",
        arguments=(
            pointer,
            f"*{weight or element}:16",
            *(pointer,) * 2,
            *("*i32",) * 2,
            pointer,
            *("i32",) * 4,
            "i64",
            "fp32",
        ),
        constants=(
            ("HEAD_DIM", head_dim),
            ("HALF", half),
            ("BLOCK", tile_width(head_dim)),
            ("PAGE", page_tokens),
            ("NORM", int(norm)),
            ("ROPE", int(rope)),
            ("WRITE", int(write)),
        ),
        num_warps=1,
    )


@cache
def prepare_row(element: ElementType, half: int, page_tokens: int) -> KernelSpec:
    """Norm, RoPE and KV write of heads that turn as a whole."""
    pointer = f"*{element}:16"
    return KernelSpec(
        module="heads",
        function="prepare_row",
        arguments=(
            *(pointer,) * 4,
            *("*i32",) * 2,
            pointer,
            count_type(half),
            *("i32",) * 2,
            f"i64{promise(half)}",
            "fp32",
        ),
        constants=(
            ("HALF", half),
            ("BLOCK", power_of_two(half)),
            ("HEADS", PREPARED_HEADS),
            ("PAGE", page_tokens),
        ),
        num_warps=2,
    )


@cache
def attend_items(element: ElementType, head_dim: int, page_tokens: int, group: int) -> KernelSpec:
    """Decode attention over parts of contexts."""
    pointer = f"*{element}:16"
    return KernelSpec(
        module="decode_attention",
        function="attend_items",
        arguments=(
            pointer,
            pointer,
            *("*i32",) * 4,
            *("*fp32:16",) * 2,
            count_type(head_dim),
            f"i64{promise(head_dim)}",
            "i32",
            "i32",
            "fp32",
        ),
        constants=(
            ("HEAD_DIM", head_dim),
            ("BLOCK_D", tile_width(head_dim)),
            ("BLOCK_G", tile_width(group)),
            ("BLOCK_N", DECODE_BLOCK if element == "bf16" else 32),
            ("PAGE", page_tokens),
        ),
        num_warps=4,
        num_stages=3 if element == "bf16" else 1,
    )


@cache
def decode_attention(
    element: ElementType,
    head_dim: int,
    half: int,
    page_tokens: int,
    group: int,
    *,
    overlaps: bool,
) -> KernelSpec:
    """Everything between a decode step's QKV product and its output projection."""
    pointer = f"*{element}:16"
    fast = element == "bf16"
    return KernelSpec(
        module="decode_step",
        function="decode_attention",
        arguments=(
            *(pointer,) * 4,
            *("*i32",) * 2,
            pointer,
            *("*i32",) * 5,
            *("*fp32:16",) * 2,
            "*i32",
            pointer,
            count_type(head_dim),
            f"i64{promise(head_dim)}",
            "i32",
            "i32",
            "fp32",
            "fp32",
        ),
        constants=(
            ("HEAD_DIM", head_dim),
            ("HALF", half),
            ("BLOCK_D", tile_width(head_dim)),
            ("BLOCK_H", power_of_two(group)),
            ("BLOCK_G", tile_width(group)),
            ("BLOCK_N", DECODE_BLOCK if fast else 32),
            ("PAGE", page_tokens),
            ("OVERLAP", int(overlaps)),
        ),
        num_warps=4,
        num_stages=3 if fast else 1,
        overlaps=overlaps,
    )


@cache
def combine_items(element: ElementType, head_dim: int) -> KernelSpec:
    """Joins the parts of each row's decode attention."""
    return KernelSpec(
        module="decode_attention",
        function="combine_items",
        arguments=("*fp32:16", "*fp32:16", "*i32", f"*{element}:16", "i32"),
        constants=(("HEAD_DIM", head_dim), ("BLOCK_D", tile_width(head_dim))),
        num_warps=1,
    )


def takes_decode_pages(
    element: ElementType, head_dim: int, page_tokens: int, group: int, arch: Arch
) -> bool:
    """Whether decode attention has a kernel with bulk tensor copies."""
    return (
        arch == DECODE_PAGES_ARCH
        and element == "bf16"
        and head_dim in _PAGES_HEAD_DIMS
        and page_tokens % DECODE_PAGE_KEYS == 0
        and group <= DECODE_PAGE_KEYS
    )


@cache
def decode_pages(
    head_dim: int,
    half: int,
    page_tokens: int,
    group: int,
    *,
    fused: bool,
    stages: int = _PAGES_STAGES,
) -> KernelSpec:
    """Decode attention in bfloat16 on Hopper; fused, everything from the QKV product on."""
    row_bytes = 2 * head_dim
    ring = _PAGES_WARPS * stages * 2 * DECODE_PAGE_KEYS * row_bytes
    scratch = DECODE_PAGE_KEYS * row_bytes + _PAGES_WARPS * 4 * head_dim
    return KernelSpec(
        module="decode_pages.cu",
        function="decode_pages",
        arguments=(
            *("*bf16:16",) * 4,
            "u64",
            "*bf16:16",
            *("*i32",) * 3,
            *("*fp32:16",) * 2,
            "*i32",
            "*bf16:16",
            "i32",
            "i64",
            "i32",
            "i32",
            "fp32",
            "fp32",
        ),
        constants=(
            ("HEAD_DIM", head_dim),
            ("GROUP", group),
            ("PAGE", page_tokens),
            ("HALF", half),
            ("FUSED", int(fused)),
            ("OVERLAP", int(fused)),
            ("STAGES", stages),
        ),
        num_warps=_PAGES_WARPS,
        overlaps=fused,
        shared_bytes=ring + scratch + _PAGES_RESERVE,
    )
