"""The queue of idle pages against an `OrderedDict`, the plainest thing that does the same."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from pegainfer_core.kv.idle_pages import IdlePages

NUM_PAGES = 9


@given(st.permutations(range(1, NUM_PAGES)), st.integers(0, NUM_PAGES))
def test_many_join_as_one_by_one(page_ids: list[int], first: int) -> None:
    pages = IdlePages(NUM_PAGES)
    for page_id in page_ids[:first]:
        pages.extend([page_id])
    pages.extend(page_ids[first:])
    pages.extend([])
    assert list(pages) == page_ids and len(pages) == len(page_ids)
    pages.remove(page_ids[-1:])
    assert [pages.pop() for _ in page_ids[1:]] == page_ids[:-1]


@given(st.lists(st.integers(0, NUM_PAGES - 1)))
def test_keeps_order_whatever_is_taken_out(touched: list[int]) -> None:
    """A page joins when it is absent and leaves when it is present; 0 stands for the oldest."""
    pages = IdlePages(NUM_PAGES)
    expected: OrderedDict[int, None] = OrderedDict()
    for page_id in touched:
        if page_id == 0:
            if expected:
                assert pages.pop() == expected.popitem(last=False)[0]
        elif page_id in expected:
            del expected[page_id]
            pages.remove([page_id])
        else:
            expected[page_id] = None
            pages.extend([page_id])
        assert list(pages) == list(expected)
        assert len(pages) == len(expected)
        assert [page for page in range(1, NUM_PAGES) if page in pages] == sorted(expected)
