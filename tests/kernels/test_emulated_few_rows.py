"""Our own products of few rows, run on the host fiber by fiber, against plain NumPy.

Says nothing of speed, or of how a device orders what is not synchronised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pegainfer_core.kernels.catalog import FEW_ROWS
from pegainfer_core.kernels.catalog import few_rows as few_rows_spec
from tests.kernels.emulated import PRODUCT_KINDS, check_product, few_rows

if TYPE_CHECKING:
    import ctypes
    from pathlib import Path

# Compiles each kernel with g++: minutes in all.
pytestmark = pytest.mark.gpu

#: k, outputs, teams, blocks a team, rows there is room for, rows.
SIZES = {
    "one row": (2560, 88, 4, 1, 1, 1),
    "fewer chunks than warps": (96, 24, 2, 1, 1, 1),
    "warps with one chunk less": (416, 40, 3, 1, 2, 2),
    "teams with unequal outputs": (512, 56, 6, 1, 4, 3),
    "more outputs than are in flight": (256, 512, 1, 1, 8, 8),
    "two blocks share k": (1088, 152, 2, 2, 1, 1),
    "four blocks share k": (512, 184, 1, 4, 8, 5),
    "nine rows": (416, 56, 3, 1, 16, 9),
    "fifteen rows, two blocks": (576, 88, 2, 2, 16, 15),
    "sixteen rows, four blocks": (512, 184, 1, 4, 16, 16),
}
DEEP = ("one row", "four blocks share k")
"""With as many copies in flight as on a device; others have few, so that the ring turns often."""

CASES = [
    ("one row", "norm"),
    ("fewer chunks than warps", "gated"),
    ("warps with one chunk less", "add"),
    ("teams with unequal outputs", "gated"),
    ("more outputs than are in flight", "norm"),
    ("more outputs than are in flight", "add"),
    ("two blocks share k", "add"),
    ("two blocks share k", "gated"),
    ("four blocks share k", "plain"),
    ("four blocks share k", "norm"),
    ("nine rows", "gated"),
    ("nine rows", "add"),
    ("fifteen rows, two blocks", "gated"),
    ("fifteen rows, two blocks", "add"),
    ("sixteen rows, four blocks", "norm"),
]

#: Of Qwen3 0.6B, 4B, 8B and 32B, shared as on a device: width, rows.
WIDTHS = [
    ("norm", 1024, (9, 16)),
    ("gated", 2560, (9, 15, 16)),
    ("norm", 4096, (16,)),
    ("gated", 5120, (12,)),
    ("add", 9728, (9, 16)),
    ("add", 12288, (16,)),
    ("add", 25600, (13,)),
]


@pytest.mark.parametrize(("sizes", "kind"), CASES)
def test_few_rows(sizes: str, kind: str, tmp_path: Path) -> None:
    k, num_outputs, teams, split, room, rows = SIZES[sizes]
    depth = {} if sizes in DEEP else {"DEPTH": 5}
    kernel = built(tmp_path, kind, k, room, SPLIT=split, **depth)
    check_product(kernel, kind, k, num_outputs, teams, rows)


@pytest.mark.parametrize(("kind", "k", "all_rows"), WIDTHS)
def test_models_widths(kind: str, k: int, all_rows: tuple[int, ...], tmp_path: Path) -> None:
    kernel = built(tmp_path, kind, k, FEW_ROWS[-1], DEPTH=5)
    for rows in all_rows:
        check_product(kernel, kind, k, 24, 1, rows)


def built(folder: Path, kind: str, k: int, room: int, **changes: int) -> ctypes.CDLL:
    norm, gated, add = (bool(flag) for flag in PRODUCT_KINDS[kind])
    spec = few_rows_spec(k, room, norm=norm, gated=gated, add=add, **changes)
    return few_rows(folder, **dict(spec.constants))
