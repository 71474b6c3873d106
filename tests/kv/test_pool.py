"""Page ids: free, active and cached, with the oldest idle page given up first."""

from __future__ import annotations

import pytest

from pegainfer_core.kv import PADDING_PAGE, PageError, PagePool


class Keeper:
    """Keeps the pages it is told to."""

    def __init__(self, kept: set[int]) -> None:
        self.kept = kept
        self.forgotten: list[int] = []

    def sort_out(self, page_ids: list[int]) -> tuple[list[int], list[int]]:
        kept = [page_id for page_id in page_ids if page_id in self.kept]
        return kept, [page_id for page_id in page_ids if page_id not in self.kept]

    def forget(self, page_id: int) -> None:
        self.kept.remove(page_id)
        self.forgotten.append(page_id)


def counts(pool: PagePool) -> tuple[int, int, int]:
    assert pool.num_free + pool.num_used + pool.num_cached == pool.num_total
    return pool.num_free, pool.num_used, pool.num_cached


def test_every_page_but_the_padding_page_is_handed_out_once() -> None:
    pool = PagePool(6)
    page_ids = pool.allocate(5)
    assert sorted(page_ids) == [1, 2, 3, 4, 5]
    assert PADDING_PAGE not in page_ids
    assert counts(pool) == (0, 5, 0)
    with pytest.raises(PageError, match="1 pages were asked for, 0 are available"):
        pool.allocate(1)


def test_failed_allocation_takes_nothing() -> None:
    pool = PagePool(4)
    pool.allocate(1)
    with pytest.raises(PageError):
        pool.allocate(3)
    assert counts(pool) == (2, 1, 0)
    assert pool.allocate(0) == []
    assert counts(pool) == (2, 1, 0)


def test_shared_page_is_idle_after_its_last_user() -> None:
    pool = PagePool(3)
    [page_id] = pool.allocate(1)
    pool.share([page_id])
    pool.release([page_id])
    assert (pool.num_users(page_id), counts(pool)) == (1, (1, 1, 0))
    pool.release([page_id])
    assert counts(pool) == (2, 0, 0)


def test_double_release_and_share_of_free_pages_are_refused() -> None:
    pool = PagePool(3)
    [page_id] = pool.allocate(1)
    pool.release([page_id])
    with pytest.raises(PageError, match=f"page {page_id} was released but has no user"):
        pool.release([page_id])
    with pytest.raises(PageError, match=f"page {page_id} is free"):
        pool.share([page_id])


def test_kept_pages_go_in_the_order_they_fell_idle_and_only_when_needed() -> None:
    keeper = Keeper({1, 2, 3})
    pool = PagePool(5, keeper)
    pool.allocate(4)
    pool.release([2, 4, 3, 1])
    assert counts(pool) == (1, 0, 3)
    pool.share([3])
    pool.release([3])
    assert pool.allocate(1) == [4]
    assert keeper.forgotten == []
    pool.allocate(2)
    assert keeper.forgotten == [2, 1]
    assert pool.num_evicted == 2
    assert pool.is_cached(3)
    assert counts(pool) == (0, 3, 1)


def test_discarded_pages_are_free_and_not_counted_as_evicted() -> None:
    keeper = Keeper({1, 2, 3})
    pool = PagePool(5, keeper)
    pool.allocate(4)
    pool.release([1, 2, 3])
    pool.discard([2, 4])
    assert counts(pool) == (1, 1, 2)
    pool.discard_all()
    assert counts(pool) == (3, 1, 0)
    assert keeper.forgotten == [2, 1, 3]
    assert pool.num_evicted == 0


def test_a_pool_needs_a_page_beside_padding() -> None:
    with pytest.raises(ValueError, match="num_pages must be at least 2"):
        PagePool(1)
