"""Our own products of few rows, run on the host fiber by fiber, against plain NumPy.

Says nothing of speed, or of how a device orders what is not synchronised.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pegainfer_core.kernels.catalog import few_rows as few_rows_spec
from tests.kernels.emulated import few_rows
from tests.kernels.emulated.step import NOT_A_NUMBER, to_floats, to_halves

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float32]

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
]


@pytest.mark.parametrize(("sizes", "kind"), CASES)
def test_few_rows(sizes: str, kind: str, tmp_path: Path) -> None:
    k, num_outputs, teams, split, room, rows = SIZES[sizes]
    norm, gated, add = KINDS[kind]
    flags = {"norm": bool(norm), "gated": bool(gated), "add": bool(add)}
    depth = {} if sizes in DEEP else {"DEPTH": 5}
    spec = few_rows_spec(k, room, **flags, SPLIT=split, **depth)
    kernel = few_rows(tmp_path, **dict(spec.constants))
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
