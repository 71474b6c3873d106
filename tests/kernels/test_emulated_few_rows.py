"""Our own products of few rows, run on the host fiber by fiber, against plain NumPy.

Says nothing of speed, or of how a device orders what is not synchronised.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pegainfer_core.kernels.catalog import FEW_ROWS
from pegainfer_core.kernels.catalog import few_rows as few_rows_spec
from tests.kernels.emulated import few_rows
from tests.kernels.emulated.step import NOT_A_NUMBER, to_floats, to_halves

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float32]

# Compiles each kernel with g++: minutes in all.
pytestmark = pytest.mark.gpu

TOLERANCE = 4e-3
EPS = 1e-6
MORE_ROWS = 1
"""Rows behind those in use, which nothing may write."""

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

#: norm, gated, add.
KINDS = {"plain": (0, 0, 0), "norm": (1, 0, 0), "gated": (1, 1, 0), "add": (0, 0, 1)}
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
    check(kernel, kind, k, num_outputs, teams, rows)


@pytest.mark.parametrize(("kind", "k", "all_rows"), WIDTHS)
def test_models_widths(kind: str, k: int, all_rows: tuple[int, ...], tmp_path: Path) -> None:
    kernel = built(tmp_path, kind, k, FEW_ROWS[-1], DEPTH=5)
    for rows in all_rows:
        check(kernel, kind, k, 24, 1, rows)


def built(folder: Path, kind: str, k: int, room: int, **changes: int) -> ctypes.CDLL:
    norm, gated, add = (bool(flag) for flag in KINDS[kind])
    spec = few_rows_spec(k, room, norm=norm, gated=gated, add=add, **changes)
    return few_rows(folder, **dict(spec.constants))


def check(kernel: ctypes.CDLL, kind: str, k: int, num_outputs: int, teams: int, rows: int) -> None:
    """Compare what a kernel computes with NumPy."""
    norm, gated, add = KINDS[kind]
    random = np.random.default_rng([k, num_outputs])
    x = to_halves(random.standard_normal((rows + MORE_ROWS, k)) * 3)
    x[rows:] = NOT_A_NUMBER
    scale = to_halves(1 + 0.2 * random.standard_normal(k))
    weight = to_halves(random.standard_normal((num_outputs * (1 + gated), k)) * k**-0.5)
    out = np.full((rows + MORE_ROWS, num_outputs), NOT_A_NUMBER, np.uint16)
    if add:
        out[:rows] = to_halves(random.standard_normal((rows, num_outputs)))
    left = to_floats(x[:rows])
    expected = product(normed(left, to_floats(scale)) if norm else left, to_floats(weight), gated)
    expected += to_floats(out[:rows]) if add else 0
    run = kernel.run
    run.argtypes = (
        [ctypes.c_void_p] * 4 + [ctypes.c_int] * 2 + [ctypes.c_float] + [ctypes.c_int] * 2
    )
    run(*(array.ctypes.data for array in (x, scale, weight, out)), rows, num_outputs, EPS, teams, k)
    error = np.linalg.norm(to_floats(out[:rows]) - expected) / np.linalg.norm(expected)
    assert error < TOLERANCE
    assert (out[rows:] == NOT_A_NUMBER).all()


def normed(x: FloatArray, scale: FloatArray) -> FloatArray:
    """RMSNorm, rounded where the op rounds."""
    root = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPS)
    return to_floats(to_halves(to_floats(to_halves(x / root)) * scale))


def product(x: FloatArray, weight: FloatArray, gated: int) -> FloatArray:
    """The product, or the activation of its halves."""
    out = x @ weight.T
    if not gated:
        return out
    gate, up = (to_floats(to_halves(half)) for half in np.split(out, 2, axis=1))
    return to_floats(to_halves(gate / (1 + np.exp(-gate)))) * up
