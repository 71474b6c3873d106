"""A product on an emulated kernel against plain NumPy."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

import numpy as np

from tests.kernels.emulated.step import NOT_A_NUMBER, TensorMap, to_floats, to_halves

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float32]
    HalfArray = NDArray[np.uint16]

PRODUCT_KINDS: Final = {
    "plain": (0, 0, 0),
    "norm": (1, 0, 0),
    "gated": (1, 1, 0),
    "add": (0, 0, 1),
}
"""Whether rows are normed, outputs activated, outputs added to what is there."""

TOLERANCE = 4e-3
EPS = 1e-6
MORE_ROWS = 1
"""Rows behind those in use, which nothing may write."""


def check_product(
    kernel: ctypes.CDLL,
    kind: str,
    k: int,
    num_outputs: int,
    teams: int,
    rows: int,
    mapped_rows: int = 0,
) -> None:
    """Compare what a kernel computes with NumPy.

    Args:
        kernel: As `few_rows` or `more_rows` builds it.
        kind: One of `PRODUCT_KINDS`.
        k: Width of the rows.
        num_outputs: Width of what comes out.
        teams: Blocks, or clusters of them.
        rows: Of the product.
        mapped_rows: Rows it has room for, if it reads matrices through tensor maps.
    """
    norm, gated, add = PRODUCT_KINDS[kind]
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
    given, kept = [array.ctypes.data for array in (x, scale, weight, out)], []
    if mapped_rows:
        kept = [matrix_map(x, mapped_rows), matrix_map(weight, 8)]
        given[2] = ctypes.addressof(kept[1])
        given[0] = given[0] if norm else ctypes.addressof(kept[0])
    run(*given, rows, num_outputs, EPS, teams, k)
    error = np.linalg.norm(to_floats(out[:rows]) - expected) / np.linalg.norm(expected)
    assert error < TOLERANCE
    assert (out[rows:] == NOT_A_NUMBER).all()


def matrix_map(matrix: HalfArray, box_rows: int) -> TensorMap:
    """Of which a copy brings 64 columns of some rows."""
    height, width = matrix.shape
    return TensorMap(matrix.ctypes.data, (width, height), (1, width), (64, box_rows, 1, 1, 1))


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
