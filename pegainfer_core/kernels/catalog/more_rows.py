"""Our own products of a matrix and some dozens of rows, with the norm, activation or sum around."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from pegainfer_core.kernels.spec import KernelSpec

if TYPE_CHECKING:
    from pegainfer_core.kernels.arch import Arch
    from pegainfer_core.kernels.catalog.sizes import ElementType

MORE_ROWS: Final = (32, 64)
"""Rows that variants have room for; fewer than `FEW_ROWS` has room for are multiplied there."""

MORE_ROWS_ARCH: Final = 90
"""The kernel is written for this one's tensor cores."""

_GROUPS: Final = 2
_GROUP_WARPS: Final = 4
_CHUNK: Final = 64
_SPLITS: Final = (1, 2, 4, 8)
_MOST_KEPT_BYTES: Final = 100 << 10
"""Of the rows, in a block: what is left is for weights under way."""

_MOST_WIDE_BYTES: Final = 156 << 10
"""The same where a width is shared by as many blocks as can."""

_TILE: Final = 64
_SHARED_BYTES: Final = 227 << 10
_TEAMS: Final = {1: 132, 2: 66, 4: 30, 8: 15}
"""Clusters of so many blocks that run at once; tiles are cut for these, others are as right."""

_MOST_DEPTH: Final = 16


def takes_more_rows(element: ElementType, k: int, n: int, rows: int, arch: Arch) -> bool:
    """Whether so many rows of width `k` times a matrix [`n`, `k`] run on our own kernel.

    Args:
        element: Type of rows and matrix.
        k: Width.
        n: Outputs.
        rows: One of `MORE_ROWS`.
        arch: Where.
    """
    return (
        element == "bf16"
        and arch == MORE_ROWS_ARCH
        and n % 8 == 0
        and n >= 2 * _TEAMS[1]
        and more_rows_split(k, rows) > 0
    )


def more_rows_split(k: int, rows: int) -> int:
    """Blocks that share a width, so that each has room for its part of the rows; 0 if none has."""
    for split in _SPLITS:
        most = _MOST_WIDE_BYTES if split == _SPLITS[-1] else _MOST_KEPT_BYTES
        if k % (_CHUNK * split) == 0 and 2 * rows * k // split <= most:
            return split
    return 0


@cache
def more_rows(
    k: int,
    n: int,
    rows: int,
    *,
    norm: bool = False,
    gated: bool = False,
    add: bool = False,
    scale: ElementType = "bf16",
    **changes: int,
) -> KernelSpec:
    """The product with what surrounds it; the source says what the constants are.

    Args:
        k: Width of the rows; `takes_more_rows` says whether it fits.
        n: Outputs, by which tiles are cut.
        rows: One of `MORE_ROWS`.
        norm: The rows are normed first.
        gated: The matrix holds gate rows, then up rows; the output is the gated activation.
        add: The output is added to.
        scale: Type of the norm's weights; in float32 the norm is rounded behind them alone.
        changes: Constants other than the usual ones, for measurements.
    """
    split = changes.get("SPLIT", more_rows_split(k, rows))
    constants = {
        "K": k,
        "ROWS": rows,
        "SPLIT": split,
        "TILE": _tile(n, split, gated=gated),
        "NORM": (2 if scale == "fp32" else 1) if norm else 0,
        "GATED": int(gated),
        "ADD": int(add),
        **changes,
    }
    rest = _shared_bytes({**constants, "DEPTH": 0})
    stages = (_SHARED_BYTES - rest) // (_GROUPS * (constants["TILE"] * 2 * _CHUNK + 8))
    constants.setdefault("DEPTH", min(stages, _MOST_DEPTH))
    return KernelSpec(
        module="more_rows.cu",
        function="more_rows",
        arguments=("u64", f"*{scale}:16", "u64", "*bf16:16", "i32", "i32", "fp32"),
        constants=tuple(constants.items()),
        num_warps=_GROUPS * _GROUP_WARPS,
        overlaps=True,
        shared_bytes=_shared_bytes(constants),
    )


def _tile(n: int, split: int, *, gated: bool) -> int:
    """Rows of weights at once: a group's outputs in as few tiles as can be, of equal size."""
    most = -(-n // 8 // (_TEAMS[split] * _GROUPS))
    room = _TILE // 8 // (1 + gated)
    return -(-most // -(-most // room)) * 8 * (1 + gated)


def _shared_bytes(c: dict[str, int]) -> int:
    """As the source lays it out."""
    slice_width = c["K"] // c["SPLIT"]
    ring = _GROUPS * c["DEPTH"] * c["TILE"] * 2 * _CHUNK
    kept = 2 * c["ROWS"] * slice_width
    received = _GROUPS * _GROUP_WARPS * 32 * c["ROWS"] * 2 if c["SPLIT"] > 1 else 0
    squares = 4 * c["ROWS"] * c["SPLIT"] if c["NORM"] else 0
    barriers = 8 * (_GROUPS * c["DEPTH"] + 1)
    return ring + kept + received + slice_width * 2 * c["NORM"] + squares + barriers
