"""Kernels of the attention of many query tokens a row."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from pegainfer_core.kernels.catalog.sizes import count_type, promise, tile_width
from pegainfer_core.kernels.spec import KernelSpec

if TYPE_CHECKING:
    from pegainfer_core.kernels.arch import Arch
    from pegainfer_core.kernels.catalog.sizes import ElementType

PREFILL_ROWS: Final = 128
"""Rows of a tile: query tokens times the query heads of one key head."""

PREFILL_BLOCK: Final = 128
"""Parts of contexts begin at multiples of this many keys."""

PREFILL_ITEM_INTS: Final = 8
"""Values that describe a piece of work; the kernels' sources say which."""

_WGMMA_ARCH: Final = 90
_WGMMA_HEAD_DIMS: Final = (64, 128, 256)
_WGMMA_WARPS: Final = 12
_STAGES: Final = 2
_SHARED_RESERVE: Final = 1024


def prefill_tile(group: int) -> int:
    """Query tokens in a tile, for so many query heads a key head."""
    return max(PREFILL_ROWS // group, 1)


def takes_wgmma(
    element: ElementType, head_dim: int, page_tokens: int, group: int, arch: Arch
) -> bool:
    """Whether there is a kernel for this architecture's own tensor core instructions."""
    block = _wgmma_block(head_dim)
    return (
        arch == _WGMMA_ARCH
        and element == "bf16"
        and head_dim in _WGMMA_HEAD_DIMS
        and page_tokens % 8 == 0
        and block % page_tokens == 0
        and group <= PREFILL_ROWS
    )


@cache
def attend_tiles_wgmma(head_dim: int, page_tokens: int, group: int) -> KernelSpec:
    """Prefill attention in bfloat16 on Hopper."""
    row_bytes = 2 * head_dim
    staged = PREFILL_ROWS * (row_bytes + 16) if head_dim <= PREFILL_BLOCK else 0
    blocks = 2 * _STAGES * _wgmma_block(head_dim) * row_bytes
    return KernelSpec(
        module="prefill_wgmma.cu",
        function="attend_tiles_wgmma",
        arguments=(
            *("u64",) * 2,
            *("*i32",) * 3,
            *("*fp32:16",) * 2,
            *("*i32",) * 2,
            "*bf16:16",
            "i32",
            "i32",
            "fp32",
        ),
        constants=(("HEAD_DIM", head_dim), ("GROUP", group), ("PAGE", page_tokens)),
        num_warps=_WGMMA_WARPS,
        shared_bytes=PREFILL_ROWS * row_bytes + blocks + staged + _SHARED_RESERVE,
    )


def prefill_parts(element: ElementType) -> int:
    """Programs that share a tile."""
    return 1 if element == "bf16" else 8


@cache
def attend_tiles(element: ElementType, head_dim: int, page_tokens: int, group: int) -> KernelSpec:
    """Prefill attention on any architecture and type."""
    pointer = f"*{element}:16"
    fast = element == "bf16"
    return KernelSpec(
        module="prefill_attention",
        function="attend_tiles",
        arguments=(
            pointer,
            pointer,
            *("*i32",) * 3,
            *("*fp32:16",) * 2,
            "*i32",
            pointer,
            count_type(head_dim),
            f"i64{promise(head_dim)}",
            "i32",
            "fp32",
        ),
        constants=(
            ("HEAD_DIM", head_dim),
            ("BLOCK_D", tile_width(head_dim)),
            ("GROUP", group),
            ("ROWS", PREFILL_ROWS),
            ("BLOCK_M", PREFILL_ROWS // prefill_parts(element)),
            ("BLOCK_N", 64 if fast else 32),
            ("PAGE", page_tokens),
            ("PARTS", prefill_parts(element)),
        ),
        num_warps=8 if fast else 4,
        num_stages=3 if fast else 1,
    )


def _wgmma_block(head_dim: int) -> int:
    """Keys that are weighed at a time."""
    return PREFILL_BLOCK if head_dim <= PREFILL_BLOCK else PREFILL_BLOCK // 2
