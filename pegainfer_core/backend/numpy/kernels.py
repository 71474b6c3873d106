"""The arithmetic of the ops, on arrays that are already cut to size. Knows no tensor and no step.

A decode step streams all weights through the caches, so that whatever runs between two products
starts cold: there calls and the objects they touch count, and the arithmetic hardly does. So every
kernel takes its activations as a tuple that can be made once and used in every layer and step,
scratch included.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pegainfer_core.backend.numpy.arrays import FloatArray
    from pegainfer_core.backend.numpy.thread_team import Task, ThreadTeam

# 0-d arrays: NumPy makes one of a Python or NumPy scalar on every call.
_SPLITTER: Final = np.array(2**16 + 1, np.float32)
_MAX_EXPONENT: Final = np.array(88, np.float32)
_ONE: Final = np.array(1, np.float32)

_CHUNK_VALUES: Final = 1 << 16

#: From this size on OpenBLAS multiplies with several threads, each with at least so many rows.
_MIN_THREADED_VALUES: Final = 460_800
_MIN_CUT_ROWS: Final = 4


class Product(NamedTuple):
    """Rows [n, k] that a matrix [m, k] turns into `out` [n, m]; 1-D for a single row."""

    rows: FloatArray
    out: FloatArray
    scratch: FloatArray


class Norm(NamedTuple):
    """Vectors along the last axis of `x`; `out` may be `x` itself."""

    x: FloatArray
    out: FloatArray
    scratch: FloatArray
    scale: FloatArray
    scale_column: FloatArray
    inverse_width: FloatArray


class Turn(NamedTuple):
    """Heads as halves [..., 2, half], turned in place; `swapped` views them the other way round."""

    halves: FloatArray
    swapped: FloatArray
    scratch: FloatArray


class Gate(NamedTuple):
    """Gate and up of an MLP, of the shape of `out`."""

    gate: FloatArray
    up: FloatArray
    out: FloatArray
    scratch: FloatArray


class Sum(NamedTuple):
    """`x` is added to `out`."""

    x: FloatArray
    out: FloatArray
    scratch: FloatArray


def bind_product(rows: FloatArray, out: FloatArray) -> Product:
    """With scratch of its own."""
    return Product(rows, out, np.empty(out.shape, np.float32))


def bind_norm(x: FloatArray, out: FloatArray) -> Norm:
    """With scratch of its own."""
    scale = np.empty(x.shape[:-1], np.float32)
    inverse_width = np.array(1.0 / x.shape[-1], np.float32)
    scratch = np.empty(out.shape, np.float32)
    return Norm(x, out, scratch, scale, scale[..., None], inverse_width)


def bind_turn(halves: FloatArray) -> Turn:
    """With scratch of its own."""
    return Turn(halves, halves[..., ::-1, :], np.empty(halves.shape, np.float32))


def bind_gate(gate: FloatArray, up: FloatArray, out: FloatArray) -> Gate:
    """With scratch of its own."""
    return Gate(gate, up, out, np.empty(out.shape, np.float32))


def bind_sum(x: FloatArray, out: FloatArray) -> Sum:
    """With scratch of its own."""
    return Sum(x, out, np.empty(out.shape, np.float32))


def multiply_vectors(products: list[Product], matrix: FloatArray, rounds: bool) -> None:
    """A few rows. Each reads the matrix once, in the order of memory, at its speed."""
    for row, out, scratch in products:
        np.dot(matrix, row, out)
        if rounds:
            round_bfloat16(out, scratch)


def multiply_matrix(product: Product, matrix: FloatArray, rounds: bool) -> None:
    """Any number of rows."""
    rows, out, scratch = product
    np.matmul(rows, matrix.T, out)
    if rounds:
        round_bfloat16(out, scratch)


def multiply_vectors_shared(
    products: list[Product], matrix: FloatArray, rounds: bool, team: ThreadTeam, *, helped: bool
) -> None:
    """A few rows, each cut as the library cuts it; bit by bit what the library makes of it.

    Args:
        products: One a row.
        matrix: [m, k].
        rounds: To bfloat16.
        team: Has as many threads as the library.
        helped: Whether the team works side by side; else the caller does one part after the other.
    """

    def share(start: int, end: int) -> None:
        part = matrix[start:end]
        for row, out, _ in products:
            if part.flags.c_contiguous:
                np.dot(part, row, out[start:end])
            else:
                np.dot(row, part.T, out[start:end])

    cuts = vector_cuts(matrix, team.size)
    tasks: list[Task] = [partial(share, *cut) for cut in pairwise(cuts)]
    if helped:
        team.run(tasks)
    else:
        for task in tasks:
            task()
    if rounds:
        for _, out, scratch in products:
            round_bfloat16(out, scratch)


def vector_cuts(matrix: FloatArray, num_threads: int) -> list[int]:
    """Where OpenBLAS cuts the rows of a matrix that it multiplies by a vector.

    Its kernels take several rows at once and the last ones apart, so that where a thread's share
    ends decides the order of sums.
    """
    num_rows = len(matrix)
    if matrix.size < _MIN_THREADED_VALUES:
        return [0, num_rows]
    cuts = [0]
    for num_left in range(num_threads, 0, -1):
        rest = num_rows - cuts[-1]
        if rest:
            cuts.append(cuts[-1] + min(max(-(-rest // num_left), _MIN_CUT_ROWS), rest))
    return cuts


def multiply_shared(product: Product, matrix: FloatArray, rounds: bool, team: ThreadTeam) -> None:
    """Any number of rows; each thread of the team makes its share of the columns."""
    rows, out, scratch = product
    step = -(-len(matrix) // team.size)

    def share(start: int) -> None:
        part = matrix[start : start + step]
        np.matmul(rows, part.T, out[:, start : start + step])

    team.run([partial(share, start) for start in range(0, len(matrix), step)])
    if rounds:
        round_bfloat16(out, scratch)


def normalise(
    norm: Norm, weight: FloatArray, eps: float, rounds: bool, *, rounds_twice: bool = True
) -> None:
    """RMS norm, rounded after the multiplication with the weight, and before it too or not."""
    x, out, scratch, scale, scale_column, inverse_width = norm
    np.vecdot(x, x, scale)
    np.multiply(scale, inverse_width, scale)
    np.add(scale, eps, scale)
    np.sqrt(scale, scale)
    np.divide(x, scale_column, out)
    if rounds and rounds_twice:
        round_bfloat16(out, scratch)
    np.multiply(out, weight, out)
    if rounds:
        round_bfloat16(out, scratch)


def turn(heads: Turn, cos: FloatArray, sin: FloatArray, rounds: bool) -> None:
    """Each x becomes x * cos + (x with its halves swapped) * sin; sin is negative for the first."""
    halves, swapped, scratch = heads
    np.multiply(swapped, sin, scratch)
    np.multiply(halves, cos, halves)
    np.add(halves, scratch, halves)
    if rounds:
        round_bfloat16(halves, scratch)


def silu_multiply(arrays: Gate, rounds: bool) -> None:
    """Compute gate / (1 + exp(-gate)), rounded, times up, rounded."""
    gate, up, out, scratch = arrays
    np.negative(gate, out)
    # Where exp would overflow, silu is zero to all digits.
    np.minimum(out, _MAX_EXPONENT, out=out)
    np.exp(out, out)
    np.add(out, _ONE, out)
    np.divide(gate, out, out)
    if rounds:
        round_bfloat16(out, scratch)
    np.multiply(out, up, out)
    if rounds:
        round_bfloat16(out, scratch)


def accumulate(arrays: Sum, rounds: bool) -> None:
    """Add and round."""
    x, out, scratch = arrays
    np.add(out, x, out)
    if rounds:
        round_bfloat16(out, scratch)


def round_bfloat16(values: FloatArray, scratch: FloatArray) -> None:
    """Round in place to values that bfloat16 holds, ties to even.

    Args:
        values: Any strides. Magnitudes below 2^111; larger ones come out as not-a-number.
        scratch: Of the same shape.
    """
    # Dekker's splitting at bit 16: what the first product loses to rounding is just the low half.
    # Three passes in place of five on the bits; a test goes through every significand.
    if values.size <= _CHUNK_VALUES:
        np.multiply(values, _SPLITTER, scratch)
        np.subtract(values, scratch, values)
        np.add(values, scratch, values)
        return
    # Chunks that stay in a core's cache: three passes then cost little more than one.
    step = max(_CHUNK_VALUES * len(values) // values.size, 1)
    for start in range(0, len(values), step):
        part, part_scratch = values[start : start + step], scratch[:step]
        part_scratch = part_scratch[: len(part)]
        np.multiply(part, _SPLITTER, part_scratch)
        np.subtract(part, part_scratch, part)
        np.add(part, part_scratch, part)
