"""Packing decoding rows at once gives what packing them one by one gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegainfer_core.backend import PageTables, StepMetadata

PAGE = 4


def metadata() -> StepMetadata:
    return StepMetadata(max_tokens=64, max_rows=16, max_pages=256, page_tokens=PAGE)


@given(st.lists(st.integers(0, 40), max_size=6), st.lists(st.integers(0, 40), max_size=6))
def test_rows_at_once_are_as_rows_one_by_one(first: list[int], second: list[int]) -> None:
    both = metadata(), metadata()
    for starts in (first, second):
        tables = [np.arange(100 * i, 100 * i + 12, dtype=np.int32) for i in range(len(starts))]
        ids = [7 + i for i in range(len(starts))]
        slots = list(range(len(starts)))[::-1]
        adapters = [start % 4 - 1 for start in starts]
        both[0].add_decode_rows(ids, starts, tables, slots, adapters)
        for row in zip(ids, starts, tables, slots, adapters, strict=True):
            token_id, start, table, slot, adapter = row
            both[1].add_row(
                [token_id], start, table.tolist(), samples=True, slot=slot, adapter=adapter
            )
    for made in both:
        made.add_row([1, 2, 3], 2, [9, 8], samples=False)
        made.finish(len(first) + len(second))
    assert vars(both[0]).keys() == vars(both[1]).keys()
    for name, value in vars(both[0]).items():
        other = vars(both[1])[name]
        assert np.array_equal(value, other) if isinstance(value, np.ndarray) else value == other


def test_too_few_pages_are_refused() -> None:
    with pytest.raises(ValueError, match="fewer pages"):
        metadata().add_decode_rows([1], [PAGE], [np.array([3], np.int32)], [0])


def test_tables_follow_growing_lists_and_new_owners() -> None:
    tables = PageTables(2, 8)
    pages = [5, 6]
    assert tables.row(1, "a", pages).tolist() == [5, 6]
    pages.append(7)
    assert tables.row(1, "a", pages).tolist() == [5, 6, 7]
    assert tables.row(0, "b", [1]).tolist() == [1]
    assert tables.row(1, "c", [9]).tolist() == [9]
    assert tables.row(1, "a", [5, 6]).tolist() == [5, 6]
