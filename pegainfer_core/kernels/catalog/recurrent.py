"""Kernels of gated delta-rule layers, and of attention whose output is gated."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from pegainfer_core.kernels.catalog.rows import SMALL_BLOCK
from pegainfer_core.kernels.catalog.sizes import (
    OVERLAP_ARCH,
    ElementType,
    count_type,
    power_of_two,
)
from pegainfer_core.kernels.spec import KernelSpec

if TYPE_CHECKING:
    from pegainfer_core.kernels.arch import Arch

PIECE_TOKENS: Final = 64
"""Most tokens that the delta rule takes at once."""

PIECE_INTS: Final = 8
"""Values that describe a piece of a row; the kernels' sources say which."""

ROW_SAVES: Final = 2
"""Copies of its state that a decoding row can leave."""

CONV_BLOCK: Final = 256
"""Channels a program convolves of one token a row."""

_CONV_PIECE_BLOCK: Final = 64
"""Channels a program convolves of a piece."""

_CONV_THREADS: Final = 64
_CONV_PARTS: Final = 2
"""Parts of a piece, for short prompts have few pieces."""

_MOST_OWN_TAPS: Final = 4
"""More would not fit our own kernel's registers."""

NORMED_HEADS: Final = 4
"""Heads that a program norms at a time."""

_LOOKED_AT: Final = 64
"""Pieces that are looked at at once for whether they ask for a copy."""

_OWN_DIM: Final = 128
"""Channels of the heads that have a kernel of their own for decoding rows."""

_PREPARED_CHANNELS: Final = {"fp16": 64, "fp32": 32}
"""Channels that a piece prepares at a time, so that registers suffice."""

SCAN_CHANNELS: Final = {False: 32, True: 64}
"""Channels of a memory's values that a program keeps, by whether many rows are scanned: of one long
row few, so that it has programs for a whole device."""

_MANY_PROGRAMS: Final = 34
"""From so many heads of rows on, programs with few channels would not run all at once on an H200,
where each has a multiprocessor for itself."""

_WRITTEN_CHANNELS: Final = {"fp16": 128, "fp32": 32}
"""The same, of what tokens write."""

_FLOAT32_SCAN_CHANNELS: Final = 16


class DeltaSizes(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernels of delta-rule layers depend on.

    Attributes:
        element: Type of weights and activations.
        num_key_heads: Query heads, and as many key heads.
        num_value_heads: Value heads.
        key_dim: Channels of a query or key head.
        value_dim: Channels of a value head.
        conv_taps: Tokens that the convolution sees.
    """

    element: ElementType
    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    conv_taps: int

    @property
    def factor(self) -> Literal["fp16", "fp32"]:
        """Type of the factors of products between tokens of a piece."""
        return "fp16" if self.element == "bf16" else "fp32"

    @property
    def conv_width(self) -> int:
        """Channels that are convolved."""
        return 2 * self.num_key_heads * self.key_dim + self.value_width

    @property
    def value_width(self) -> int:
        """Values of a token's value heads."""
        return self.num_value_heads * self.value_dim

    @property
    def projected_width(self) -> int:
        """Values that a token is projected to: what is convolved, the gates, b and a."""
        return self.conv_width + self.value_width + 2 * self.num_value_heads

    @property
    def conv_types(self) -> tuple[str, str]:
        """Argument types of a layer's taps or slots, and of the distance between its slots."""
        aligned = ":16" if self.conv_width % 16 == 0 else ""
        return f"*{self.element}{aligned}", f"i64{aligned}"

    @property
    def memory_types(self) -> tuple[str, str]:
        """Argument types of a layer's memories, and of the distance between their slots."""
        aligned = ":16" if self.key_dim * self.value_dim % 16 == 0 else ""
        return f"*fp32{aligned}", f"i64{aligned}"


def sigmoid_mul(element: ElementType, width: int) -> KernelSpec:
    """The gate on attention's output."""
    pointer = f"*{element}:16"
    return KernelSpec(
        module="gates",
        function="sigmoid_mul",
        arguments=(pointer, pointer, "i32", "i32", count_type(width)),
        constants=(("BLOCK", SMALL_BLOCK),),
    )


@cache
def gated_norm(element: ElementType, head_dim: int) -> KernelSpec:
    """Norm and gate of delta-rule heads."""
    pointer = f"*{element}"
    return KernelSpec(
        module="gates",
        function="gated_norm",
        arguments=(*(pointer,) * 4, *("i32",) * 3, "fp32"),
        constants=(
            ("HEAD_DIM", head_dim),
            ("BLOCK", power_of_two(head_dim)),
            ("HEADS", NORMED_HEADS),
        ),
        num_warps=2,
    )


@cache
def conv_step(sizes: DeltaSizes, *, overlaps: bool) -> KernelSpec:
    """Convolution of decoding rows."""
    pointer, (kept, distance) = f"*{sizes.element}:16", sizes.conv_types
    return KernelSpec(
        module="causal_conv",
        function="conv_step",
        arguments=(
            pointer,
            pointer,
            *("*i32",) * 3,
            kept,
            pointer,
            count_type(sizes.projected_width),
            count_type(sizes.conv_width),
            distance,
        ),
        constants=(
            ("TAPS", sizes.conv_taps),
            ("BLOCK", CONV_BLOCK),
            ("OVERLAP", int(overlaps)),
        ),
        num_warps=2,
        overlaps=overlaps,
    )


@cache
def conv_pieces(sizes: DeltaSizes) -> KernelSpec:
    """Convolution of pieces of longer rows."""
    pointer, (kept, distance) = f"*{sizes.element}:16", sizes.conv_types
    arguments = (
        pointer,
        pointer,
        *("*i32",) * 2,
        kept,
        pointer,
        count_type(sizes.projected_width),
        count_type(sizes.conv_width),
        distance,
    )
    if _convolves_eights(sizes):
        return KernelSpec(
            module="conv_pieces.cu",
            function="conv_pieces",
            arguments=arguments,
            constants=(
                ("TAPS", sizes.conv_taps),
                ("THREADS", _CONV_THREADS),
                ("PARTS", _CONV_PARTS),
                ("TOKENS", PIECE_TOKENS // _CONV_PARTS),
            ),
            num_warps=_CONV_THREADS // 32,
        )
    return KernelSpec(
        module="causal_conv",
        function="conv_pieces",
        arguments=arguments,
        constants=(
            ("TAPS", sizes.conv_taps),
            ("TOKENS", PIECE_TOKENS),
            ("BLOCK", _CONV_PIECE_BLOCK),
        ),
    )


def conv_piece_programs(sizes: DeltaSizes) -> int:
    """Programs that convolve a piece."""
    if _convolves_eights(sizes):
        return -(-sizes.conv_width // (8 * _CONV_THREADS)) * _CONV_PARTS
    return -(-sizes.conv_width // _CONV_PIECE_BLOCK)


def _convolves_eights(sizes: DeltaSizes) -> bool:
    """Whether channels lie in aligned eights, which our own kernel takes at once."""
    widths = (sizes.conv_width, sizes.projected_width)
    few = sizes.conv_taps <= _MOST_OWN_TAPS
    return sizes.element == "bf16" and few and all(width % 8 == 0 for width in widths)


@cache
def keep_inputs(sizes: DeltaSizes) -> KernelSpec:
    """What longer rows leave for their next tokens' convolution."""
    pointer, (kept, distance) = f"*{sizes.element}:16", sizes.conv_types
    return KernelSpec(
        module="causal_conv",
        function="keep_inputs",
        arguments=(
            pointer,
            *("*i32",) * 2,
            kept,
            count_type(sizes.projected_width),
            count_type(sizes.conv_width),
            distance,
        ),
        constants=(
            ("TAPS", sizes.conv_taps),
            ("HISTORY", power_of_two(sizes.conv_taps - 1)),
            ("LOOK", _LOOKED_AT),
            ("BLOCK", CONV_BLOCK),
        ),
        num_warps=2,
    )


@cache
def delta_step(sizes: DeltaSizes, *, gated: bool, overlaps: bool) -> KernelSpec:
    """The delta rule of decoding rows, with norm and gate of its output or without."""
    pointer, (memory, distance) = f"*{sizes.element}", sizes.memory_types
    arguments = (
        *(pointer,) * 2,
        *("*fp32",) * 2,
        pointer,
        *("*i32",) * 3,
        memory,
        pointer,
        *("i32",) * 5,
        distance,
        *("fp32",) * 2,
    )
    if (sizes.element, sizes.key_dim, sizes.value_dim) == ("bf16", _OWN_DIM, _OWN_DIM):
        return KernelSpec(
            module="delta_step.cu",
            function="delta_step",
            arguments=arguments,
            constants=(("GATED", int(gated)), ("OVERLAP", int(overlaps))),
            num_warps=8,
            overlaps=overlaps,
        )
    key_block, value_block = _blocks(sizes)
    return KernelSpec(
        module="delta_rule",
        function="delta_step",
        arguments=arguments,
        constants=(*_dims(sizes, key_block, value_block), ("GATED", int(gated))),
        num_warps=min(max(key_block * value_block // 1024, 1), 16),
    )


@cache
def relate_pieces(sizes: DeltaSizes) -> KernelSpec:
    """How the tokens of each piece stand to each other."""
    pointer, factor = f"*{sizes.element}", f"*{sizes.factor}:16"
    key_block, value_block = _blocks(sizes)
    constants = dict(_dims(sizes, key_block, value_block))
    del constants["BLOCK_V"]
    return KernelSpec(
        module="delta_rule",
        function="relate_pieces",
        arguments=(
            *(pointer,) * 2,
            *("*fp32",) * 2,
            *("*i32",) * 2,
            *(factor,) * 3,
            *("*fp32:16",) * 5,
            *("i32",) * 4,
            "fp32",
        ),
        constants=(*constants.items(), ("BLOCK", _prepared_channels(sizes))),
        num_stages=1,
    )


@cache
def invert_pieces(sizes: DeltaSizes) -> KernelSpec:
    """What follows from that for what each token writes."""
    factor = f"*{sizes.factor}:16"
    own = sizes.factor == "fp16"
    return KernelSpec(
        module="invert_pieces.cu" if own else "delta_rule",
        function="invert_pieces",
        arguments=(*("*i32",) * 2, *("*fp32:16",) * 3, *(factor,) * 2, "i32"),
        num_warps=PIECE_TOKENS // 32 if own else 4,
        num_stages=1,
    )


@cache
def write_pieces(sizes: DeltaSizes) -> KernelSpec:
    """What each token of a piece writes, but for the memory at the piece's start."""
    factor = f"*{sizes.factor}:16"
    return KernelSpec(
        module="delta_rule",
        function="write_pieces",
        arguments=(
            f"*{sizes.element}",
            *("*i32",) * 2,
            *(factor,) * 4,
            "*fp32:16",
            *("i32",) * 2,
        ),
        constants=(*_dims(sizes, *_blocks(sizes)), ("BLOCK", _written_channels(sizes))),
        num_warps=8,
        num_stages=1,
    )


def scan_channels(sizes: DeltaSizes, num_programs: int) -> int:
    """Channels of the values that a program of `scan_pieces` has: few where few rows are scanned.

    Args:
        sizes: Of the layer.
        num_programs: A row's head counts as one.
    """
    most = _blocks(sizes)[1]
    if sizes.factor == "fp32":
        return min(most, _FLOAT32_SCAN_CHANNELS)
    return min(most, SCAN_CHANNELS[num_programs >= _MANY_PROGRAMS])


@cache
def scan_pieces(sizes: DeltaSizes, channels: int) -> KernelSpec:
    """The part of the chunked delta rule that goes from piece to piece; see `scan_channels`."""
    key_block, (memory, distance) = _blocks(sizes)[0], sizes.memory_types
    factor = f"*{sizes.factor}:16"
    is_fast = sizes.factor == "fp16"
    return KernelSpec(
        module="delta_rule",
        function="scan_pieces",
        arguments=(
            *("*i32",) * 2,
            *(factor,) * 3,
            "*fp32:16",
            factor,
            *("*fp32:16",) * 3,
            memory,
            f"*{sizes.element}",
            *("i32",) * 2,
            distance,
        ),
        constants=_dims(sizes, key_block, channels),
        num_warps=4 if is_fast and channels <= SCAN_CHANNELS[False] else 8,
        num_stages=3 if is_fast else 1,
    )


def _prepared_channels(sizes: DeltaSizes) -> int:
    return min(*_blocks(sizes), _PREPARED_CHANNELS[sizes.factor])


def _written_channels(sizes: DeltaSizes) -> int:
    return min(*_blocks(sizes), _WRITTEN_CHANNELS[sizes.factor])


def recurrent_specs(sizes: DeltaSizes, arch: Arch) -> list[KernelSpec]:
    """Every kernel that delta-rule layers launch."""
    overlaps = arch >= OVERLAP_ARCH
    return [
        conv_step(sizes, overlaps=overlaps),
        conv_pieces(sizes),
        keep_inputs(sizes),
        delta_step(sizes, gated=True, overlaps=overlaps),
        relate_pieces(sizes),
        invert_pieces(sizes),
        write_pieces(sizes),
        *(scan_pieces(sizes, scan_channels(sizes, num)) for num in (1, _MANY_PROGRAMS)),
        gated_norm(sizes.element, sizes.value_dim),
    ]


def _blocks(sizes: DeltaSizes) -> tuple[int, int]:
    return max(power_of_two(sizes.key_dim), 16), max(power_of_two(sizes.value_dim), 16)


def _dims(sizes: DeltaSizes, key_block: int, value_block: int) -> tuple[tuple[str, int], ...]:
    return (
        ("KEY_DIM", sizes.key_dim),
        ("VALUE_DIM", sizes.value_dim),
        ("BLOCK_K", key_block),
        ("BLOCK_V", value_block),
    )
