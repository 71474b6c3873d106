"""Our own products of some dozens of rows, run on the host fiber by fiber, against plain NumPy.

Says nothing of speed, or of how a device orders what is not synchronised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pegainfer_core.kernels.catalog import more_rows as more_rows_spec
from tests.kernels.emulated import PRODUCT_KINDS, check_product, more_rows

if TYPE_CHECKING:
    from pathlib import Path

# Compiles each kernel with g++.
pytestmark = pytest.mark.gpu

#: Kind, k, outputs, teams, blocks a team, rows of a tile, rows there is room for, rows.
CASES = {
    "one block": ("plain", 128, 64, 1, 1, 32, 32, 32),
    "normed": ("norm", 256, 88, 2, 1, 24, 32, 17),
    "gated": ("gated", 128, 64, 1, 1, 64, 32, 29),
    "two tiles": ("add", 192, 192, 1, 1, 48, 32, 32),
    "tiles of unequal size": ("add", 192, 152, 3, 1, 16, 32, 19),
    "a tile without outputs": ("add", 128, 24, 1, 1, 8, 32, 32),
    "two blocks share k": ("norm", 256, 104, 1, 2, 56, 32, 32),
    "two blocks, gated": ("gated", 256, 72, 1, 2, 32, 32, 30),
    "four blocks": ("add", 512, 80, 1, 4, 40, 32, 21),
    "eight blocks, three tiles": ("add", 512, 96, 1, 8, 16, 32, 32),
    "64 rows": ("plain", 128, 96, 1, 1, 48, 64, 64),
    "64 rows, four blocks": ("gated", 512, 72, 1, 4, 32, 64, 49),
    "64 rows, eight blocks": ("add", 512, 80, 1, 8, 24, 64, 33),
    "64 rows, normed": ("norm", 256, 80, 1, 2, 40, 64, 57),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("depth", [3, 7])
def test_more_rows(case: str, depth: int, tmp_path: Path) -> None:
    kind, k, num_outputs, teams, split, tile, room, rows = CASES[case]
    norm, gated, add = (bool(flag) for flag in PRODUCT_KINDS[kind])
    spec = more_rows_spec(
        k, 512, room, norm=norm, gated=gated, add=add, SPLIT=split, TILE=tile, DEPTH=depth
    )
    kernel = more_rows(tmp_path, **dict(spec.constants))
    check_product(kernel, kind, k, num_outputs, teams, rows, room)
