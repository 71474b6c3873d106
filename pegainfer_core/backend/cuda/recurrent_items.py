"""How rows are cut for recurrent layers, and where copies of states go. Pure host arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pegainfer_core.backend.cuda.step_shape import MAX_PROMPT_ROWS
from pegainfer_core.kernels.catalog import PIECE_INTS, PIECE_TOKENS, ROW_SAVES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.backend.metadata import StepMetadata

    IntArray = NDArray[np.int32]


class RecurrentItems(NamedTuple):
    """Work of recurrent layers.

    Attributes:
        pieces: [n, 8]: first token, how many (0 for one more copy of the same state), first token
            of the row, the row's slot or -1, whether the row starts from zeros, slot for a copy of
            the state behind the piece or -1, and nothing; row after row, each row's in order.
        row_pieces: [rows + 1] first piece of each row that does not decode, and the end.
        row_saves: [decoding rows, 2] slots for copies of their states, or -1.
    """

    pieces: IntArray
    row_pieces: IntArray
    row_saves: IntArray


class RecurrentWork(NamedTuple):
    """The same on a device.

    Attributes:
        num_pieces: At least as many as there are pieces; 0 if all rows decode.
        num_rows: At least as many as there are rows that do not decode.
        piece_count: Device address of the number of pieces.
        pieces: Device address, as the following.
        row_pieces: For `num_rows` rows.
        row_slots: Of decoding rows, -1 for padding.
        row_saves: Of decoding rows, -1 for padding.
    """

    num_pieces: int
    num_rows: int
    piece_count: int
    pieces: int
    row_pieces: int
    row_slots: int
    row_saves: int


def max_pieces(max_tokens: int, max_rows: int, max_saves: int) -> int:
    """Most pieces of a step."""
    return max_tokens // PIECE_TOKENS + max_rows + max_saves


def recorded_pieces(num_tokens: int) -> int:
    """Pieces that a recorded step of prompts has room for; one with more is run as it is."""
    return max_pieces(num_tokens, MAX_PROMPT_ROWS, 2 * MAX_PROMPT_ROWS)


def recurrent_items(metadata: StepMetadata) -> RecurrentItems:
    """Cut rows where copies of their states are taken, and after so many tokens.

    Raises:
        ValueError: A decoding row is to leave more copies than there is room for.
    """
    num_decode, num_rows = metadata.num_decode, metadata.num_rows
    ends = metadata.save_ends[: metadata.num_saves].tolist()
    slots = metadata.save_slots[: metadata.num_saves].tolist()
    saves = list(zip(ends, slots, strict=True))
    row_saves = _row_saves([save for save in saves if save[0] <= num_decode], num_decode)
    saves = [save for save in saves if save[0] > num_decode]
    starts = metadata.row_starts[num_decode : num_rows + 1].tolist()
    contexts = metadata.context_lens[num_decode:num_rows].tolist()
    row_slots = metadata.row_slots[num_decode:num_rows].tolist()
    pieces: list[tuple[int, ...]] = []
    row_pieces = [0]
    for first, end, context, slot in zip(starts, starts[1:], contexts, row_slots, strict=False):
        starts_anew = int(context == end - first)
        cuts = [save for save in saves if first < save[0] <= end]
        for begin, count, save in _cut(first, end, cuts):
            pieces.append((begin, count, first, slot, starts_anew, save, 0, 0))
        row_pieces.append(len(pieces))
    return RecurrentItems(
        np.array(pieces, np.int32).reshape(-1, PIECE_INTS),
        np.array(row_pieces, np.int32),
        row_saves,
    )


def _row_saves(saves: list[tuple[int, int]], num_decode: int) -> IntArray:
    found = np.full((num_decode, ROW_SAVES), -1, np.int32)
    for end, slot in saves:
        free = np.flatnonzero(found[end - 1] < 0)
        if not len(free):
            raise ValueError(f"decoding row {end - 1} is to leave more than {ROW_SAVES} copies")
        found[end - 1, free[0]] = slot
    return found


def _cut(first: int, end: int, saves: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """First token, count and save of each piece of a row."""
    parts = []
    for stop, slot in [*saves, (end, -1)]:
        while stop - first > PIECE_TOKENS:
            parts.append((first, PIECE_TOKENS, -1))
            first += PIECE_TOKENS
        if stop > first or slot >= 0:
            parts.append((first, stop - first, slot))
        first = stop
    return parts
