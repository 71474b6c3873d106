"""Kernels of delta-rule layers that take tokens of longer rows a piece at a time."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from pegainfer_core.kernels.catalog.sizes import count_type
from pegainfer_core.kernels.spec import KernelSpec

if TYPE_CHECKING:
    from pegainfer_core.kernels.arch import Arch
    from pegainfer_core.kernels.catalog.delta_sizes import DeltaSizes

PIECE_TOKENS: Final = 64
"""Most tokens that the delta rule takes at once."""

PIECE_INTS: Final = 8
"""Values that describe a piece of a row; the kernels' sources say which."""

_CONV_PIECE_BLOCK: Final = 64
"""Channels a program convolves of a piece."""

_CONV_THREADS: Final = 64

_CONV_PARTS: Final = 2
"""Parts of a piece, for short prompts have few pieces."""

_MOST_OWN_TAPS: Final = 4
"""More would not fit our own kernel's registers."""

_PREPARED_CHANNELS: Final = {"fp16": 64, "fp32": 32}
"""Channels that a piece prepares at a time, so that registers suffice."""

_WRITTEN_CHANNELS: Final = {"fp16": 128, "fp32": 32}
"""The same, of what tokens write."""

SCAN_CHANNELS: Final = {False: 32, True: 64}
"""Channels of a memory's values that a program keeps, by whether many rows are scanned: of one long
row few, so that it has programs for a whole device."""

_MANY_PROGRAMS: Final = 34
"""From so many heads of rows on, programs with few channels would not run all at once on an H200,
where each has a multiprocessor for itself."""

_FLOAT32_SCAN_CHANNELS: Final = 16

_TURNED_ARCH: Final = 90
"""Whose tensor cores the scan in registers is written for."""

_TURNED_KEY_DIM: Final = 128
TURNED_CHANNELS: Final = 64
"""Channels of a memory's values that a block of that scan has."""

_TURNED_WARPS: Final = 5
_TURNED_STAGES: Final = 3
_TURNED_STAGE_BYTES: Final = 9 * PIECE_TOKENS * 128 + 1024
_TURNED_BARRIER_BYTES: Final = 64


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
def relate_pieces(sizes: DeltaSizes) -> KernelSpec:
    """How the tokens of each piece stand to each other."""
    pointer, factor = f"*{sizes.element}", f"*{sizes.factor}:16"
    key_block, value_block = sizes.blocks
    constants = dict(sizes.dims(key_block, value_block))
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
        constants=(*sizes.dims(*sizes.blocks), ("BLOCK", _written_channels(sizes))),
        num_warps=8,
        num_stages=1,
    )


def scan_channels(sizes: DeltaSizes, num_programs: int) -> int:
    """Channels of the values that a program of `scan_pieces` has: few where few rows are scanned.

    Args:
        sizes: Of the layer.
        num_programs: A row's head counts as one.
    """
    most = sizes.blocks[1]
    if sizes.factor == "fp32":
        return min(most, _FLOAT32_SCAN_CHANNELS)
    return min(most, SCAN_CHANNELS[num_programs >= _MANY_PROGRAMS])


@cache
def scan_pieces(sizes: DeltaSizes, channels: int) -> KernelSpec:
    """The part of the chunked delta rule that goes from piece to piece; see `scan_channels`."""
    key_block, (memory, distance) = sizes.blocks[0], sizes.memory_types
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
        constants=sizes.dims(key_block, channels),
        num_warps=4 if is_fast and channels <= SCAN_CHANNELS[False] else 8,
        num_stages=3 if is_fast else 1,
    )


def takes_turned_scan(sizes: DeltaSizes, arch: Arch) -> bool:
    """Whether there is a scan that keeps memories in registers, for this architecture."""
    return (
        arch == _TURNED_ARCH
        and sizes.factor == "fp16"
        and sizes.key_dim == _TURNED_KEY_DIM
        and sizes.value_dim % TURNED_CHANNELS == 0
    )


@cache
def turned_scan(sizes: DeltaSizes) -> KernelSpec:
    """`scan_pieces` with memories in registers; finds tiles by tensor maps."""
    memory, distance = sizes.memory_types
    return KernelSpec(
        module="scan_pieces.cu",
        function="scan_pieces",
        arguments=(
            *("*i32",) * 2,
            *("u64",) * 5,
            *("*fp32:16",) * 3,
            memory,
            f"*{sizes.element}",
            *("i32",) * 2,
            distance,
        ),
        constants=(("VALUE_DIM", sizes.value_dim),),
        num_warps=_TURNED_WARPS,
        shared_bytes=_TURNED_STAGES * _TURNED_STAGE_BYTES + _TURNED_BARRIER_BYTES,
    )


def _prepared_channels(sizes: DeltaSizes) -> int:
    return min(*sizes.blocks, _PREPARED_CHANNELS[sizes.factor])


def _written_channels(sizes: DeltaSizes) -> int:
    return min(*sizes.blocks, _WRITTEN_CHANNELS[sizes.factor])


def piece_specs(sizes: DeltaSizes, arch: Arch) -> list[KernelSpec]:
    """Every one of these kernels that runs on an architecture."""
    scans = [scan_pieces(sizes, scan_channels(sizes, num)) for num in (1, _MANY_PROGRAMS)]
    return [
        conv_pieces(sizes),
        relate_pieces(sizes),
        invert_pieces(sizes),
        write_pieces(sizes),
        *([turned_scan(sizes)] if takes_turned_scan(sizes, arch) else scans),
    ]
