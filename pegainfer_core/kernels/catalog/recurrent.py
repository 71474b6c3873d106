"""Kernels of gated delta-rule layers, and of attention whose output is gated."""

from __future__ import annotations

from functools import cache
from typing import Final

import msgspec

from pegainfer_core.kernels.catalog.rows import SMALL_BLOCK
from pegainfer_core.kernels.catalog.sizes import ElementType, count_type, power_of_two
from pegainfer_core.kernels.spec import KernelSpec

PIECE_TOKENS: Final = 64
"""Most tokens that the delta rule takes at once."""

PIECE_INTS: Final = 8
"""Values that describe a piece of a row; the kernels' sources say which."""

ROW_SAVES: Final = 2
"""Copies of its state that a decoding row can leave."""

CONV_BLOCK: Final = 256
"""Channels a program convolves of one token a row."""

CONV_PIECE_BLOCK: Final = 64
"""Channels a program convolves of a piece."""

NORMED_HEADS: Final = 4
"""Heads that a program norms at a time."""

_PREPARED_CHANNELS: Final = 32
"""Channels that a piece prepares at a time, so that registers suffice."""

_SCAN_CHANNELS: Final = 16
"""Channels of a memory's values that a program keeps: few, so that one long row has programs for
a whole device."""


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
def conv_step(sizes: DeltaSizes) -> KernelSpec:
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
        constants=(("TAPS", sizes.conv_taps), ("BLOCK", CONV_BLOCK)),
        num_warps=2,
    )


@cache
def conv_pieces(sizes: DeltaSizes) -> KernelSpec:
    """Convolution of pieces of longer rows."""
    pointer, (kept, distance) = f"*{sizes.element}:16", sizes.conv_types
    return KernelSpec(
        module="causal_conv",
        function="conv_pieces",
        arguments=(
            pointer,
            pointer,
            *("*i32",) * 2,
            kept,
            pointer,
            count_type(sizes.projected_width),
            count_type(sizes.conv_width),
            distance,
        ),
        constants=(
            ("TAPS", sizes.conv_taps),
            ("TOKENS", PIECE_TOKENS),
            ("BLOCK", CONV_PIECE_BLOCK),
        ),
    )


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
            ("BLOCK", CONV_BLOCK),
        ),
        num_warps=2,
    )


@cache
def delta_step(sizes: DeltaSizes, *, gated: bool) -> KernelSpec:
    """The delta rule of decoding rows, with norm and gate of its output or without."""
    pointer, (memory, distance) = f"*{sizes.element}", sizes.memory_types
    key_block, value_block = _blocks(sizes)
    return KernelSpec(
        module="delta_rule",
        function="delta_step",
        arguments=(
            *(pointer,) * 2,
            *("*fp32",) * 2,
            pointer,
            *("*i32",) * 3,
            memory,
            pointer,
            *("i32",) * 5,
            distance,
            *("fp32",) * 2,
        ),
        constants=(*_dims(sizes, key_block, value_block), ("GATED", int(gated))),
        num_warps=min(max(key_block * value_block // 1024, 1), 16),
    )


@cache
def prepare_pieces(sizes: DeltaSizes) -> KernelSpec:
    """The part of the chunked delta rule that all pieces do at once."""
    pointer = f"*{sizes.element}"
    return KernelSpec(
        module="delta_rule",
        function="prepare_pieces",
        arguments=(
            *(pointer,) * 2,
            *("*fp32",) * 2,
            *("*i32",) * 2,
            *("*fp32:16",) * 5,
            *("i32",) * 4,
            "fp32",
        ),
        constants=(
            *_dims(sizes, *_blocks(sizes)),
            ("BLOCK", min(*_blocks(sizes), _PREPARED_CHANNELS)),
            ("FAST", int(sizes.element == "bf16")),
        ),
        num_warps=8,
        num_stages=1,
    )


def scan_channels(sizes: DeltaSizes) -> int:
    """Channels of the values that a program of `scan_pieces` has."""
    return min(_blocks(sizes)[1], _SCAN_CHANNELS)


@cache
def scan_pieces(sizes: DeltaSizes) -> KernelSpec:
    """The part of the chunked delta rule that goes from piece to piece."""
    key_block, (memory, distance) = _blocks(sizes)[0], sizes.memory_types
    return KernelSpec(
        module="delta_rule",
        function="scan_pieces",
        arguments=(
            f"*{sizes.element}",
            *("*i32",) * 2,
            *("*fp32:16",) * 4,
            memory,
            f"*{sizes.element}",
            *("i32",) * 2,
            distance,
            "fp32",
        ),
        constants=(
            *_dims(sizes, key_block, scan_channels(sizes)),
            ("FAST", int(sizes.element == "bf16")),
        ),
        num_warps=8,
        num_stages=1,
    )


def recurrent_specs(sizes: DeltaSizes) -> list[KernelSpec]:
    """Every kernel that delta-rule layers launch."""
    return [
        conv_step(sizes),
        conv_pieces(sizes),
        keep_inputs(sizes),
        delta_step(sizes, gated=True),
        prepare_pieces(sizes),
        scan_pieces(sizes),
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
