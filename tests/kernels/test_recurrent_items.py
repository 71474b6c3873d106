"""How rows are cut for recurrent layers: every token once, and copies where they were asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegainfer_core.backend import StepMetadata
from pegainfer_core.backend.cuda.recurrent_items import max_pieces, recurrent_items
from pegainfer_core.kernels.catalog import PIECE_TOKENS

MAX_SAVES = 32


def step(
    rows: list[tuple[int, int]], num_decode: int, saves: list[tuple[int, int, int]]
) -> StepMetadata:
    """Rows of (tokens before, tokens), in slots of their number; saves of (row, tokens, slot)."""
    metadata = StepMetadata(4096, 16, 4096, 16, max_saves=MAX_SAVES)
    for slot, (start, count) in enumerate(rows):
        pages = [1] * -(-(start + count) // 16)
        metadata.add_row([0] * count, start, pages, samples=True, slot=slot)
    for save in saves:
        metadata.add_save(*save)
    metadata.finish(num_decode)
    return metadata


@given(st.data())
def test_every_token_is_in_one_piece_and_every_save_ends_one(data: st.DataObject) -> None:
    num_decode = data.draw(st.integers(0, 4))
    counts = [1] * num_decode + data.draw(st.lists(st.integers(1, 200), max_size=5))
    rows = [(data.draw(st.sampled_from([0, 1, 100])), count) for count in counts]
    saves = []
    for row, count in enumerate(counts):
        ends = data.draw(st.lists(st.integers(1, count), max_size=2).map(sorted))
        saves += [(row, end, 100 + len(saves) + i) for i, end in enumerate(ends)]
    metadata = step(rows, num_decode, saves)
    items = recurrent_items(metadata)
    assert len(items.pieces) <= max_pieces(metadata.num_tokens, len(rows), len(saves))
    found = {(row, 1, slot) for row in range(num_decode) for slot in items.row_saves[row].tolist()}
    found = {save for save in found if save[2] >= 0}
    for index, (start, count) in enumerate(rows[num_decode:]):
        row = num_decode + index
        own = items.pieces[items.row_pieces[index] : items.row_pieces[index + 1]].tolist()
        row_first = int(metadata.row_starts[row])
        at = row_first
        for first, tokens, of_row, slot, anew, save, *_ in own:
            assert (first, of_row, slot, anew) == (at, row_first, row, int(start == 0))
            assert 0 <= tokens <= PIECE_TOKENS
            at += tokens
            if save >= 0:
                found.add((row, at - row_first, save))
        assert at == row_first + count
    assert found == set(saves)
    assert items.row_pieces[-1] == len(items.pieces)


def test_a_decoding_row_leaves_two_copies_at_most() -> None:
    saves = [(0, 1, slot) for slot in (7, 8, 9)]
    with pytest.raises(ValueError, match="decoding row 0 is to leave more than 2 copies"):
        recurrent_items(step([(5, 1)], 1, saves))
