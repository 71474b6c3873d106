"""Idle pages in the order in which they became idle. Knows ids only, not what the pages hold."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENDS = 0
_ABSENT = -1


class IdlePages:
    """A queue of page ids from which any can be taken; every method costs the same at any size.

    A ring linked through two arrays, closed by the padding page, which is never idle. It takes
    8 bytes a page, where an `OrderedDict` takes more than 100.

    Args:
        num_pages: Page ids are below this; 0 is none.

    Attributes:
        size: Pages in the queue.
    """

    def __init__(self, num_pages: int) -> None:
        self._next = array("i", [_ABSENT]) * num_pages
        self._previous = array("i", [_ABSENT]) * num_pages
        self._next[_ENDS] = self._previous[_ENDS] = _ENDS
        self.size = 0

    def __len__(self) -> int:
        """Pages in the queue."""
        return self.size

    def __contains__(self, page_id: int) -> bool:
        """Whether a page is in the queue."""
        return self._next[page_id] != _ABSENT

    def __iter__(self) -> Iterator[int]:
        """All of them, the oldest first."""
        page_id = self._next[_ENDS]
        while page_id != _ENDS:
            yield page_id
            page_id = self._next[page_id]

    def extend(self, page_ids: list[int]) -> None:
        """Put pages that are not in the queue at its end, in their order."""
        following, previous = self._next, self._previous
        newest = previous[_ENDS]
        for page_id in page_ids:
            following[newest] = page_id
            previous[page_id] = newest
            newest = page_id
        following[newest] = _ENDS
        previous[_ENDS] = newest
        self.size += len(page_ids)

    def remove(self, page_ids: list[int]) -> None:
        """Take pages that are in the queue out of it."""
        following, previous = self._next, self._previous
        for page_id in page_ids:
            before, after = previous[page_id], following[page_id]
            following[before], previous[after] = after, before
            following[page_id] = _ABSENT
        self.size -= len(page_ids)

    def pop(self) -> int:
        """Take out the oldest of at least one page."""
        page_id = self._next[_ENDS]
        after = self._next[_ENDS] = self._next[page_id]
        self._previous[after] = _ENDS
        self._next[page_id] = _ABSENT
        self.size -= 1
        return page_id
