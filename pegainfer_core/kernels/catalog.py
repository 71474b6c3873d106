"""Which kernel variants exist, and which of them a decoder of given sizes needs.

The one place that knows block sizes. Device code and builders take their specs from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from pegainfer_core.kernels.spec import KernelSpec

if TYPE_CHECKING:
    from pegainfer_core.kernels.arch import Arch

ElementType = Literal["bf16", "fp32"]

SMALL_BLOCK: Final = 1024
"""Values a program of an elementwise kernel handles."""

ARGMAX_PARTS: Final = 32
ARGMAX_BLOCK: Final = 1024
SEEDED_BLOCK: Final = 256

OVERLAP_ARCH: Final = 90
"""From here on a kernel can start while the one before it drains."""

GEMV_BLOCK: Final = 512
GEMV_ROWS: Final = (1,)
"""Numbers of vectors that a matrix is multiplied with by our own kernel."""


class DecoderSizes(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernels of a transformer decoder depend on.

    Attributes:
        element: Type of weights, activations and KV.
        hidden: Width of the residual stream.
        intermediate: Width of the MLP.
        num_heads: Query heads.
        num_kv_heads: Key/value heads.
        head_dim: Channels of a head.
        page_tokens: Tokens in a KV page.
    """

    element: ElementType
    hidden: int
    intermediate: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    page_tokens: int


def decoder_specs(sizes: DecoderSizes, arch: Arch) -> list[KernelSpec]:
    """Every kernel that a decoder's steps launch on an architecture."""
    element, head_dim, page = sizes.element, sizes.head_dim, sizes.page_tokens
    group = sizes.num_heads // sizes.num_kv_heads
    overlaps = arch >= OVERLAP_ARCH
    query_width = sizes.num_heads * head_dim
    specs = [
        take_rows(element, sizes.hidden),
        rms_norm(element, sizes.hidden, overlaps=False),
        silu_mul(element, sizes.intermediate),
        prepare_heads(element, head_dim, head_dim // 2, page, norm=True, rope=True, write=True),
        attend_items(element, head_dim, page, group),
        combine_items(element, head_dim),
        attend_tiles(element, head_dim, page),
        argmax_parts(),
        argmax_rows(),
        fill_quantiles(element),
        decode_attention(element, head_dim, head_dim // 2, page, group, overlaps=overlaps),
    ]
    if overlaps:
        specs.append(rms_norm(element, sizes.hidden, overlaps=True))
    for rows in GEMV_ROWS:
        if takes_gemv(sizes.hidden):
            specs.append(gemv(element, sizes.hidden, rows, overlaps=overlaps))
            specs.append(gemv(element, sizes.hidden, rows, overlaps=overlaps, gated=True))
        for k in (query_width, sizes.intermediate):
            if takes_gemv(k):
                specs.append(gemv(element, k, rows, overlaps=overlaps, add=True))
    return specs


def take_rows(element: ElementType, width: int) -> KernelSpec:
    """`out`[i] = `source`[indices[i]]."""
    pointer = f"*{element}:16"
    return KernelSpec(
        module="rows",
        function="take_rows",
        arguments=(pointer, "*i32", pointer, _count(width)),
        constants=(("BLOCK", SMALL_BLOCK),),
    )


def rms_norm(element: ElementType, width: int, *, overlaps: bool) -> KernelSpec:
    """RMSNorm of whole rows."""
    pointer = f"*{element}:16"
    block = max(_power_of_two(width), 16)
    return KernelSpec(
        module="rows",
        function="rms_norm",
        arguments=(pointer, pointer, pointer, _count(width), "fp32"),
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
        arguments=(pointer, pointer, _count(width)),
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


def prepare_heads(
    element: ElementType,
    head_dim: int,
    half: int,
    page_tokens: int,
    *,
    norm: bool,
    rope: bool,
    write: bool,
) -> KernelSpec:
    """Norm, RoPE and KV write, or some of them."""
    pointer = f"*{element}:16"
    return KernelSpec(
        module="heads",
        function="prepare_heads",
        arguments=(
            *(pointer,) * 4,
            *("*i32",) * 2,
            pointer,
            *("i32",) * 4,
            "i64",
            "fp32",
        ),
        constants=(
            ("HEAD_DIM", head_dim),
            ("HALF", half),
            ("BLOCK", max(_power_of_two(head_dim), 16)),
            ("PAGE", page_tokens),
            ("NORM", int(norm)),
            ("ROPE", int(rope)),
            ("WRITE", int(write)),
        ),
        num_warps=1,
    )


def attend_items(element: ElementType, head_dim: int, page_tokens: int, group: int) -> KernelSpec:
    """Decode attention over parts of contexts."""
    pointer = f"*{element}:16"
    block_d = max(_power_of_two(head_dim), 16)
    aligned = ":16" if head_dim % 16 == 0 else ""
    return KernelSpec(
        module="decode_attention",
        function="attend_items",
        arguments=(
            pointer,
            pointer,
            *("*i32",) * 4,
            *("*fp32:16",) * 2,
            f"i32{aligned}",
            f"i64{aligned}",
            "i32",
            "i32",
            "fp32",
        ),
        constants=(
            ("HEAD_DIM", head_dim),
            ("BLOCK_D", block_d),
            ("BLOCK_G", max(_power_of_two(group), 16)),
            ("BLOCK_N", DECODE_BLOCK if element == "bf16" else 32),
            ("PAGE", page_tokens),
        ),
        num_warps=4,
        num_stages=3 if element == "bf16" else 1,
    )


DECODE_BLOCK: Final = 64
"""Positions a step of the decode attention takes; parts of contexts are multiples of it."""


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
    aligned = ":16" if head_dim % 16 == 0 else ""
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
            f"i32{aligned}",
            f"i64{aligned}",
            "i32",
            "i32",
            "fp32",
            "fp32",
        ),
        constants=(
            ("HEAD_DIM", head_dim),
            ("HALF", half),
            ("BLOCK_D", max(_power_of_two(head_dim), 16)),
            ("BLOCK_H", _power_of_two(group)),
            ("BLOCK_G", max(_power_of_two(group), 16)),
            ("BLOCK_N", DECODE_BLOCK if fast else 32),
            ("PAGE", page_tokens),
            ("OVERLAP", int(overlaps)),
        ),
        num_warps=4,
        num_stages=3 if fast else 1,
        overlaps=overlaps,
    )


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


def combine_items(element: ElementType, head_dim: int) -> KernelSpec:
    """Joins the parts of each row's decode attention."""
    return KernelSpec(
        module="decode_attention",
        function="combine_items",
        arguments=("*fp32:16", "*fp32:16", "*i32", f"*{element}:16", "i32"),
        constants=(("HEAD_DIM", head_dim), ("BLOCK_D", max(_power_of_two(head_dim), 16))),
        num_warps=1,
    )


PREFILL_TILE: Final = 128
"""Query tokens in a tile of the prefill attention's work list."""


def prefill_parts(element: ElementType) -> int:
    """Programs that share a tile."""
    return 1 if element == "bf16" else 8


def attend_tiles(element: ElementType, head_dim: int, page_tokens: int) -> KernelSpec:
    """Prefill attention."""
    pointer = f"*{element}:16"
    aligned = ":16" if head_dim % 16 == 0 else ""
    fast = element == "bf16"
    return KernelSpec(
        module="prefill_attention",
        function="attend_tiles",
        arguments=(
            pointer,
            pointer,
            *("*i32",) * 5,
            pointer,
            f"i32{aligned}",
            f"i64{aligned}",
            "i32",
            "i32",
            "fp32",
        ),
        constants=(
            ("HEAD_DIM", head_dim),
            ("BLOCK_D", max(_power_of_two(head_dim), 16)),
            ("BLOCK_M", PREFILL_TILE // prefill_parts(element)),
            ("BLOCK_N", 64 if fast else 32),
            ("PAGE", page_tokens),
            ("PARTS", prefill_parts(element)),
        ),
        num_warps=8 if fast else 4,
        num_stages=3 if fast else 1,
    )


def argmax_parts() -> KernelSpec:
    """Best of parts of rows of logits."""
    return KernelSpec(
        module="argmax",
        function="argmax_parts",
        arguments=(*("*fp32",) * 3, "i32", "i32"),
        constants=(("BLOCK", ARGMAX_BLOCK),),
    )


def argmax_rows() -> KernelSpec:
    """Best of the parts of each row."""
    return KernelSpec(
        module="argmax",
        function="argmax_rows",
        arguments=(*("*fp32",) * 3, "i32"),
        constants=(("BLOCK", ARGMAX_PARTS),),
        num_warps=1,
    )


def fill_quantiles(element: ElementType) -> KernelSpec:
    """Seeded random values."""
    pointer = f"*{element}"
    return KernelSpec(
        module="seeded",
        function="fill_quantiles",
        arguments=(pointer, pointer, "u64", "i64"),
        constants=(("BLOCK", SEEDED_BLOCK),),
    )


def _count(value: int) -> str:
    return "i32:16" if value % 16 == 0 else "i32"


def _power_of_two(value: int) -> int:
    return 1 << max(value - 1, 0).bit_length()
