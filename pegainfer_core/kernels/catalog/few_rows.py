"""Our own products of a matrix and a few rows, with the norm, activation or sum around them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from pegainfer_core.kernels.spec import KernelSpec

if TYPE_CHECKING:
    from pegainfer_core.kernels.arch import Arch
    from pegainfer_core.kernels.catalog.sizes import ElementType

FEW_ROWS: Final = (1, 8, 16)
"""Rows that variants have room for; more than the last are multiplied by the library."""

FEW_ROWS_ARCH: Final = 90
"""Where few rows are multiplied by our own kernel; measured on this one alone."""

_WARPS: Final = 8
_CHUNK: Final = 32
_SPLITS: Final = (1, 2, 4, 8)
_MOST_CHUNKS: Final = 19
_MOST_NORMED_CHUNKS: Final = 14
"""Chunks of k a warp keeps of the rows, in four registers for eight rows; more would spill.

The same for any rows, so that a row's sums are the same whatever rows are beside it.
"""

_REGISTERS: Final = {1: 112, 8: 112, 16: 255}
"""Most of a thread, by rows there is room for."""

_WIDE_REGISTERS: Final = 120
"""At least as many where the norm's weights are in float32."""

_SHARED_BYTES: Final = 227 << 10
_MAX_DEPTH: Final = 44
"""Of 4 KB each: so many that only one block fits a multiprocessor; more were not measured."""


def takes_few_rows(element: ElementType, k: int, n: int, arch: Arch) -> bool:
    """Whether a few rows of width `k` times a matrix [`n`, `k`] run on our own kernel."""
    return (
        element == "bf16"
        and arch == FEW_ROWS_ARCH
        and n % 8 == 0
        and k % _CHUNK == 0
        and few_rows_split(k, norm=True) > 0
    )


def few_rows_split(k: int, *, norm: bool) -> int:
    """Blocks that share a width, so that each has room for its part of the rows; 0 if none has."""
    most = _MOST_NORMED_CHUNKS if norm else _MOST_CHUNKS
    for split in _SPLITS:
        if k % (_CHUNK * split) == 0 and _chunks(k, split) <= most:
            return split
    return 0


@cache
def few_rows(
    k: int,
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
        k: Width of the rows; `takes_few_rows` says whether it fits.
        rows: One of `FEW_ROWS`.
        norm: The rows are normed first.
        gated: The matrix holds gate rows, then up rows; the output is the gated activation.
        add: The output is added to.
        scale: Type of the norm's weights; in float32 the norm is rounded behind them alone.
        changes: Constants other than the usual ones, for measurements.
    """
    constants = {
        "K": k,
        "ROWS": rows,
        "WARPS": _WARPS,
        "SPLIT": few_rows_split(k, norm=norm),
        "BATCH": 4,
        "EXCHANGE": 8,
        "NORM": (2 if scale == "fp32" else 1) if norm else 0,
        "GATED": int(gated),
        "ADD": int(add),
        "REGISTERS": _registers(rows, wide=norm and scale == "fp32"),
        **changes,
    }
    rest = _shared_bytes({**constants, "DEPTH": 0})
    constants.setdefault("DEPTH", min((_SHARED_BYTES - rest) // (_WARPS * 512), _MAX_DEPTH))
    return KernelSpec(
        module="few_rows.cu",
        function="few_rows",
        arguments=("*bf16:16", f"*{scale}:16", *("*bf16:16",) * 2, "i32", "i32", "fp32"),
        constants=tuple(constants.items()),
        num_warps=_WARPS,
        overlaps=True,
        shared_bytes=_shared_bytes(constants),
    )


def _registers(rows: int, *, wide: bool) -> int:
    room = next(room for room in FEW_ROWS if room >= rows)
    return max(_REGISTERS[room], _WIDE_REGISTERS) if wide else _REGISTERS[room]


def _chunks(k: int, split: int) -> int:
    """Of a warp."""
    return -(-k // (_CHUNK * split * _WARPS))


def _shared_bytes(c: dict[str, int]) -> int:
    """As the source lays it out."""
    pairs_bytes = 8 * 4 * c["ROWS"]
    parts = 2 * c["BATCH"] * c["WARPS"] * pairs_bytes
    received = 2 * c["EXCHANGE"] * (1 + c["GATED"]) * pairs_bytes if c["SPLIT"] > 1 else 0
    scale = c["K"] * 2 * c["NORM"] // c["SPLIT"]
    tokens = -(-c["ROWS"] // 8) * 8
    squares = 4 * tokens * (c["WARPS"] + c["SPLIT"]) if c["NORM"] else 0
    return c["DEPTH"] * c["WARPS"] * 512 + parts + received + scale + squares
