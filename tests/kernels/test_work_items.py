"""How attention is cut into pieces: everything once, nothing empty, no more than there is room."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pegainfer_core.backend.cuda.work_items import decode_items, prefill_tiles

COUNTS = st.lists(st.integers(1, 50_000), min_size=1, max_size=64)


@given(contexts=COUNTS, target=st.integers(1, 600), block=st.sampled_from([16, 64]))
def test_parts_cover_every_context_once(contexts: list[int], target: int, block: int) -> None:
    made = decode_items(np.array(contexts, np.int32), target, block)
    assert len(made.items) <= len(contexts) + target
    assert made.row_items[-1] == len(made.items)
    for row, context in enumerate(contexts):
        parts = made.items[made.row_items[row] : made.row_items[row + 1]]
        assert (parts[:, 0] == row).all()
        assert parts[0, 1] == 0 and parts[-1, 2] == context
        assert (parts[1:, 1] == parts[:-1, 2]).all()
        assert (parts[:, 2] > parts[:, 1]).all()
        assert not (parts[:, 1] % block).any()


@given(counts=COUNTS, first_row=st.integers(0, 9))
def test_tiles_cover_every_query_once(counts: list[int], first_row: int) -> None:
    tiles = prefill_tiles(np.array(counts, np.int32), first_row, 128)
    expected = {
        (first_row + row, first) for row, n in enumerate(counts) for first in range(0, n, 128)
    }
    assert len(tiles) == len(expected)
    assert {(int(row), int(first)) for row, first in tiles} == expected
