"""Ids of KV pages: who may use which, and which idle page is given up first.

Owns no memory and knows nothing of tokens: what a page holds is its keeper's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pegainfer_core.kv.idle_pages import IdlePages

if TYPE_CHECKING:
    from collections.abc import Iterable

PADDING_PAGE = 0
"""Rows that only fill up a batch write here; it is never handed out."""


class PageError(RuntimeError):
    """A page was released too often, or taken where none was left: a bug in the caller."""


class PageKeeper(Protocol):
    """Remembers what pages hold, so that idle ones can be used again."""

    def sort_out(self, page_ids: list[int]) -> tuple[list[int], list[int]]:
        """Say which of the pages whose last user let go to keep, in order, and which to free."""
        ...

    def forget(self, page_id: int) -> None:
        """Learn that a kept page is about to be overwritten."""
        ...


class PagePool:
    """Pages 1 .. num_pages - 1, each free, active (used by someone) or cached (idle, kept).

    free + used + cached = total at any time, and every method costs O(pages touched). Cached pages
    are given up in the order in which they became idle, so whoever releases a sequence's pages
    last to first keeps the rule that a page goes before the pages it builds on.

    Attributes:
        num_total: Pages that can be handed out; the padding page is not among them.
        num_evicted: Cached pages given up for new owners so far.
    """

    def __init__(self, num_pages: int, keeper: PageKeeper | None = None) -> None:
        """Start with every page free.

        Args:
            num_pages: Pages of the memory behind the ids, the padding page included.
            keeper: Decides which idle pages stay cached; None keeps none.

        Raises:
            ValueError: There is no page beside the padding page.
        """
        if num_pages < 2:
            raise ValueError(f"num_pages must be at least 2 (one is padding), not {num_pages}")
        self.num_total = num_pages - 1
        self.num_evicted = 0
        self._keeper = keeper
        self._num_users = [0] * num_pages
        self._free = list(range(num_pages - 1, PADDING_PAGE, -1))
        self._cached = IdlePages(num_pages)

    @property
    def num_free(self) -> int:
        """Pages that hold nothing of use."""
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Idle pages that can be used again or given up."""
        return len(self._cached)

    @property
    def num_used(self) -> int:
        """Pages with at least one user."""
        return self.num_total - len(self._free) - len(self._cached)

    @property
    def num_available(self) -> int:
        """Pages that `allocate` could hand out now."""
        return len(self._free) + self._cached.size

    def num_users(self, page_id: int) -> int:
        """Users of a page."""
        return self._num_users[page_id]

    def num_idle(self, page_ids: Iterable[int]) -> int:
        """How many of some pages have no user."""
        return list(map(self._num_users.__getitem__, page_ids)).count(0)

    def is_cached(self, page_id: int) -> bool:
        """Whether a page is idle and kept."""
        return page_id in self._cached

    def allocate(self, count: int) -> list[int]:
        """Hand out pages with one user each, giving up cached ones when the free ones run out.

        Raises:
            PageError: Fewer than `count` pages are available; nothing was taken.
        """
        free = self._free
        if len(free) < count:
            if count > self.num_available:
                raise PageError(f"{count} pages were asked for, {self.num_available} are available")
            while len(free) < count:
                self._evict()
                self.num_evicted += 1
        if count == 1:
            page_id = free.pop()
            self._num_users[page_id] = 1
            return [page_id]
        first = len(free) - count
        page_ids = free[first:]
        del free[first:]
        for page_id in page_ids:
            self._num_users[page_id] = 1
        return page_ids

    def share(self, page_ids: Iterable[int]) -> None:
        """Add a user to active or cached pages.

        Raises:
            PageError: A page is free; what it held is gone.
        """
        all_users, cached = self._num_users, self._cached
        idle: list[int] = []
        for page_id in page_ids:
            num_users = all_users[page_id]
            if num_users == 0:
                if page_id not in cached:
                    cached.remove(idle)
                    raise PageError(f"page {page_id} is free and cannot be shared")
                idle.append(page_id)
            all_users[page_id] = num_users + 1
        cached.remove(idle)

    def release(self, page_ids: Iterable[int]) -> None:
        """Take a user off each page; pages left idle become cached or free.

        Raises:
            PageError: A page has no user.
        """
        all_users = self._num_users
        idle: list[int] = []
        for page_id in page_ids:
            num_users = all_users[page_id] - 1
            if num_users < 0:
                self._retire(idle)
                raise PageError(f"page {page_id} was released but has no user")
            all_users[page_id] = num_users
            if num_users == 0:
                idle.append(page_id)
        self._retire(idle)

    def discard(self, page_ids: Iterable[int]) -> None:
        """Free those of the pages that are cached."""
        for page_id in page_ids:
            if page_id in self._cached:
                self._cached.remove([page_id])
                self._free_kept(page_id)

    def discard_all(self) -> None:
        """Free every cached page."""
        while self._cached:
            self._evict()

    def _retire(self, page_ids: list[int]) -> None:
        if self._keeper is None:
            self._free += page_ids
            return
        kept, needless = self._keeper.sort_out(page_ids)
        self._cached.extend(kept)
        self._free += needless

    def _evict(self) -> None:
        self._free_kept(self._cached.pop())

    def _free_kept(self, page_id: int) -> None:
        if self._keeper is not None:
            self._keeper.forget(page_id)
        self._free.append(page_id)
