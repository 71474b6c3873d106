"""How tokens are grouped by adapter: each adapted one once, no tile mixed, no more than is room."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pegainfer_core.backend import StepMetadata
from pegainfer_core.backend.cuda.lora_items import lora_tiles, max_lora_tiles
from pegainfer_core.kernels.catalog import LORA_TILE

NUM_SLOTS = 5
ROWS = st.lists(st.tuples(st.integers(1, 70), st.integers(-1, NUM_SLOTS - 1)), max_size=12)


@given(ROWS)
def test_tiles_hold_every_adapted_token_once(rows: list[tuple[int, int]]) -> None:
    metadata = StepMetadata(1024, 16, 1024, 16)
    of_token: list[int] = []
    for count, slot in rows:
        metadata.add_row([0] * count, 0, [1] * 5, samples=False, adapter=slot)
        of_token += [slot] * count
    metadata.finish(0)
    tokens, tiles = lora_tiles(metadata)
    assert len(tiles) <= max_lora_tiles(max(len(of_token), 1), NUM_SLOTS)
    seen: list[int] = []
    for slot, first, count, _ in tiles.tolist():
        assert 0 < count <= LORA_TILE and first == len(seen)
        held = tokens[first : first + count].tolist()
        assert {of_token[token] for token in held} == {slot}
        seen += held
    assert sorted(seen) == [token for token, slot in enumerate(of_token) if slot >= 0]
    assert tokens.dtype == tiles.dtype == np.int32
