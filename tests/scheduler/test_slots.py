"""Rows of per-request tables."""

from __future__ import annotations

import pytest

from pegainfer_core.engine import SlotPool


def test_the_lowest_free_row_comes_first() -> None:
    slots = SlotPool(4)
    assert [slots.take() for _ in range(4)] == [0, 1, 2, 3]
    assert not slots
    with pytest.raises(IndexError):
        slots.take()
    slots.give_back(2)
    slots.give_back(0)
    assert len(slots) == 2
    assert [slots.take(), slots.take()] == [0, 2]
