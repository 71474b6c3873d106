"""Kernels of gated delta-rule layers, and of attention whose output is gated."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from pegainfer_core.kernels.catalog.pieces import piece_specs
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
    from pegainfer_core.kernels.catalog.delta_sizes import DeltaSizes

ROW_SAVES: Final = 2
"""Copies of its state that a decoding row can leave."""

CONV_BLOCK: Final = 256
"""Channels a program convolves of one token a row."""

NORMED_HEADS: Final = 4
"""Heads that a program norms at a time."""

_LOOKED_AT: Final = 64
"""Pieces that are looked at at once for whether they ask for a copy."""

_OWN_DIM: Final = 128
"""Channels of the heads that have a kernel of their own for decoding rows."""


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
    key_block, value_block = sizes.blocks
    return KernelSpec(
        module="delta_rule",
        function="delta_step",
        arguments=arguments,
        constants=(*sizes.dims(key_block, value_block), ("GATED", int(gated))),
        num_warps=min(max(key_block * value_block // 1024, 1), 16),
    )


def recurrent_specs(sizes: DeltaSizes, arch: Arch) -> list[KernelSpec]:
    """Every kernel that delta-rule layers launch."""
    overlaps = arch >= OVERLAP_ARCH
    return [
        conv_step(sizes, overlaps=overlaps),
        keep_inputs(sizes),
        delta_step(sizes, gated=True, overlaps=overlaps),
        *piece_specs(sizes, arch),
        gated_norm(sizes.element, sizes.value_dim),
    ]
