"""How attention is cut into pieces: everything once, nothing empty, no more than there is room."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegainfer_core.backend.cuda.work_items import (
    AttentionLimits,
    PrefillLimits,
    decode_items,
    max_prefill_items,
    max_split_parts,
    prefill_items,
)

COUNTS = st.lists(st.integers(1, 50_000), min_size=1, max_size=64)


@given(contexts=COUNTS, target=st.integers(1, 600), block=st.sampled_from([16, 64]))
def test_parts_cover_every_context_once(contexts: list[int], target: int, block: int) -> None:
    tables = np.arange(len(contexts), dtype=np.int32) * 7
    made = decode_items(np.array(contexts, np.int32), tables, target, block)
    assert len(made.items) <= len(contexts) + target
    assert made.row_items[-1] == len(made.items)
    for row, context in enumerate(contexts):
        parts = made.items[made.row_items[row] : made.row_items[row + 1]]
        assert (parts[:, 0] == row).all()
        assert parts[0, 1] == 0 and parts[-1, 2] == context
        assert (parts[1:, 1] == parts[:-1, 2]).all()
        assert (parts[:, 2] > parts[:, 1]).all()
        assert not (parts[:, 1] % block).any()
        assert (parts[:, 3:7] == [tables[row], made.row_items[row], len(parts), context - 1]).all()


@st.composite
def prefilling(draw: st.DrawFn) -> list[tuple[int, int]]:
    """(query tokens, tokens before them) of rows."""
    return draw(
        st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 40_000)), min_size=1, max_size=24)
    )


@given(
    rows=prefilling(),
    tile=st.sampled_from([16, 25, 32, 128]),
    target=st.integers(1, 132),
    first=st.integers(0, 9),
)
def test_pieces_cover_what_every_query_sees(
    rows: list[tuple[int, int]], tile: int, target: int, first: int
) -> None:
    limits = PrefillLimits(tile=tile, block=128, target=target)
    counts = np.array([count for count, _ in rows], np.int32)
    before = np.array([context for _, context in rows], np.int32)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32) + np.int32(first)
    tables = np.cumsum(-(-(before + counts) // 16)).astype(np.int32)
    items = prefill_items(starts, before + counts, tables, limits)
    assert len(items) <= max_prefill_items(len(rows), int(counts.sum()), limits)
    assert (np.diff(items[:, 4] - items[:, 3]) <= 0).all()
    pieces: dict[int, list[list[int]]] = {}
    for item in items.tolist():
        pieces.setdefault(item[0], []).append(item)
    slots: set[int] = set()
    for row, (count, context) in enumerate(rows):
        for done in range(0, count, tile):
            parts = sorted(pieces.pop(int(starts[row]) + done), key=lambda item: item[7] & 0xFFFF)
            taken = min(tile, count - done)
            keys = 0
            for number, item in enumerate(parts):
                assert item[1:3] == [taken, context + done]
                assert item[3] == keys and item[4] > keys and keys % limits.block == 0
                assert item[5] == tables[row]
                assert item[7] == number | len(parts) << 16
                keys = item[4]
            assert keys == context + done + taken
            if len(parts) > 1:
                mine = {parts[0][6] + number for number in range(len(parts))}
                assert not mine & slots
                slots |= mine
    assert not pieces
    assert not slots or max(slots) < max_split_parts(limits)


@pytest.mark.parametrize(
    ("count", "context", "longest"),
    [(16, 16_384, 8), (64, 16_384, 17), (256, 16_384, 64), (512, 16_384, 128), (640, 16_384, 80)],
)
def test_few_tiles_behind_a_long_context_keep_the_device_busy(
    count: int, context: int, longest: int
) -> None:
    """With eight key heads and 132 multiprocessors sixteen pieces run at a time."""
    limits = PrefillLimits(tile=32, block=128, target=16)
    items = prefill_items(
        np.array([0, count], np.int32), np.array([context], np.int32), np.array([0]), limits
    )
    blocks = -(-(items[:, 4] - items[:, 3]) // 128)
    assert blocks.max() <= longest + 1
    ideal = -(-blocks.sum() // 16)
    assert sum(blocks[::16]) <= 1.25 * ideal + 2


def test_a_long_prompt_is_not_split() -> None:
    limits = PrefillLimits(tile=32, block=128, target=16)
    items = prefill_items(
        np.array([0, 4096], np.int32), np.array([4096], np.int32), np.array([0]), limits
    )
    assert len(items) == 128


def test_limits_share_the_multiprocessors_among_key_heads() -> None:
    limits = AttentionLimits.of(num_multiprocessors=132, num_kv_heads=8, group=4)
    assert (limits.target_items, limits.prefill.target, limits.prefill.tile) == (33, 16, 32)
    few = AttentionLimits.of(num_multiprocessors=4, num_kv_heads=16, group=200)
    assert (few.target_items, few.prefill.target, few.prefill.tile) == (1, 1, 1)
