"""The delta rule from piece to piece, run on the host fiber by fiber, against plain NumPy.

Says nothing of speed, or of how a device orders what is not synchronised.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.kernels.emulated import scan_pieces
from tests.kernels.emulated.step import TensorMap, to_floats

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[np.generic]
    FloatArray = NDArray[np.float32]

# Compiles the kernel with g++.
pytestmark = pytest.mark.gpu

DIM, PIECE = 128, 64
KEY_HEADS, HEADS = 1, 2
SLOTS = 5
TOLERANCE = 4e-3

#: Rows: slot, whether they start anew, and pieces: tokens, slot for a copy.
CASES = {
    "one whole piece": [(0, True, [(64, -1)])],
    "a piece that is not full": [(1, True, [(37, -1)])],
    "more pieces than stages": [(2, False, [(64, -1)] * 4 + [(5, 3)])],
    "copies between": [(0, False, [(64, 1), (0, 2), (64, -1), (17, 3), (0, 4)])],
    "a row without a slot": [(-1, True, [(64, -1), (1, -1)])],
    "rows side by side": [
        (0, True, [(64, -1), (9, -1)]),
        (1, False, [(3, -1)]),
        (2, True, []),
        (4, False, [(64, 3)]),
    ],
}


@pytest.mark.parametrize("case", CASES)
def test_scan(case: str, tmp_path: Path) -> None:
    random = np.random.default_rng(len(case))
    rows = CASES[case]
    pieces, row_pieces = laid_out(rows)
    num_tokens = sum(count for _, _, parts in rows for count, _ in parts)
    given = Inputs(random, num_tokens)
    states = random.standard_normal((SLOTS, HEADS, DIM, DIM)).astype(np.float32)
    expected_states = states.copy()
    expected = reference(rows, given, expected_states)
    out = np.zeros((num_tokens, HEADS, DIM), np.uint16)
    call(scan_pieces(tmp_path, VALUE_DIM=DIM), pieces, row_pieces, given, states, out)
    for found, wanted in ((to_floats(out), expected), (states, expected_states)):
        assert np.linalg.norm(found - wanted) <= TOLERANCE * np.linalg.norm(wanted)
    untouched = set(range(SLOTS)) - {slot for slot, _, parts in rows if parts}
    untouched -= {save for _, _, parts in rows for _, save in parts}
    for slot in untouched:
        np.testing.assert_array_equal(states[slot], expected_states[slot])


class Inputs:
    """What other kernels prepared for tokens; behind the last everything is not a number."""

    def __init__(self, random: np.random.Generator, num_tokens: int) -> None:
        def values(*shape: int, scale: float = 1.0) -> FloatArray:
            made = np.full((num_tokens + PIECE, *shape), np.nan, np.float32)
            made[:num_tokens] = scale * random.standard_normal((num_tokens, *shape))
            return made

        self.queries = values(KEY_HEADS, DIM, scale=DIM**-0.5).astype(np.float16)
        self.keys = values(KEY_HEADS, DIM, scale=DIM**-0.5).astype(np.float16)
        self.reads = values(HEADS, DIM, scale=DIM**-0.5).astype(np.float16)
        self.writes = values(HEADS, DIM)
        self.scores = values(HEADS, PIECE, scale=0.1).astype(np.float16)
        self.decays = -np.abs(values(HEADS, scale=0.3))
        self.query_factors, self.key_factors = np.abs(values(HEADS)), np.abs(values(HEADS))

    def mask_scores(self, first: int, count: int) -> None:
        """As they are laid out: zeros for tokens to come."""
        self.scores[first : first + count] *= np.tri(count, PIECE, dtype=np.float16)[:, None]


def laid_out(rows: list[tuple[int, bool, list[tuple[int, int]]]]) -> tuple[Array, Array]:
    pieces, row_pieces, first = [], [0], 0
    for slot, anew, parts in rows:
        start = first
        for count, save in parts:
            pieces.append((first, count, start, slot, int(anew), save, 0, 0))
            first += count
        row_pieces.append(len(pieces))
    return np.array(pieces, np.int32), np.array(row_pieces, np.int32)


def reference(
    rows: list[tuple[int, bool, list[tuple[int, int]]]], given: Inputs, states: FloatArray
) -> FloatArray:
    """In float32 where the kernel has float16 factors."""
    outputs, first = [], 0
    for slot, anew, parts in rows:
        memory = states[slot].copy() if slot >= 0 and not anew else np.zeros((HEADS, DIM, DIM))
        for count, save in parts:
            own = slice(first, first + count)
            given.mask_scores(first, count)
            for head in range(HEADS if count else 0):
                known = memory[head]
                write = given.writes[own, head] - given.reads[own, head].astype(float) @ known
                asked = given.queries[own, 0].astype(float) @ known
                asked *= given.query_factors[own, head, None]
                scores = given.scores[own, head, :count].astype(float)
                outputs.append((first, head, asked + scores @ write))
                kept = write * given.key_factors[own, head, None]
                decay = np.exp(given.decays[first + count - 1, head])
                memory[head] = known * decay + given.keys[own, 0].astype(float).T @ kept
            first += count
            if save >= 0:
                states[save] = memory
        if slot >= 0 and parts:
            states[slot] = memory
    out = np.zeros((first, HEADS, DIM), np.float32)
    for at, head, values in outputs:
        out[at : at + len(values), head] = values
    return out


def call(
    kernel: ctypes.CDLL,
    pieces: Array,
    row_pieces: Array,
    given: Inputs,
    states: FloatArray,
    out: Array,
) -> None:
    tiles = [given.queries, given.keys, given.reads, given.writes, given.scores]
    maps = [tile_map(values) for values in tiles]
    facts = (given.decays, given.query_factors, given.key_factors)
    kernel.run.argtypes = (
        [ctypes.c_void_p] * 12 + [ctypes.c_int] * 2 + [ctypes.c_longlong] + [ctypes.c_int] * 2
    )
    kernel.run(
        pieces.ctypes.data, row_pieces.ctypes.data, *(ctypes.addressof(each) for each in maps),
        *(values.ctypes.data for values in facts), states.ctypes.data, out.ctypes.data,
        KEY_HEADS, HEADS, HEADS * DIM * DIM, len(row_pieces) - 1, 1,
    )  # fmt: skip


def tile_map(values: Array) -> TensorMap:
    """Of which a copy brings 128 bytes of 64 tokens."""
    width = values[0].nbytes // 2
    return TensorMap(values.ctypes.data, (width, len(values)), (1, width), (64, PIECE, 1, 1, 1))
