"""Copies new pages to host memory, and from there to the tiers behind it. Runs on its thread."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pegainfer_core.backend import PageMover
    from pegainfer_core.kv import PageKey
    from pegainfer_core.offload.copies import Copies
    from pegainfer_core.offload.host_pool import HostPool, HostSlot
    from pegainfer_core.offload.lower_tier import LowerTier
    from pegainfer_core.offload.record import RecordLayout

logger = logging.getLogger(__name__)

_PAGES_A_COPY: Final = 64
"""Pages are given back when the last of their copy has landed."""


class NamesPages(Protocol):
    """Knows what a sequence's pages are called outside the device."""

    def of(self, first: int, end: int) -> tuple[list[PageKey], PageKey | None]:
        """Keys of some pages, and of the page before them."""
        ...


PageSaves = tuple[NamesPages, int, list[int]]
"""Consecutive pages of a sequence to be saved: the keys of its pages, the index of the first one
(those before it are in use), and where they are. Nobody writes them until their batch landed."""


class _Page(NamedTuple):
    key: PageKey
    parent: PageKey | None
    page_id: int


class _Batch:
    def __init__(self, number: int, num_copies: int) -> None:
        self.number = number
        self.num_copies = num_copies


class Saver:
    """Saves each page once.

    Args:
        pool: Host memory.
        mover: Copies.
        copies: Those from the device, under way.
        layout: Of records.
        tiers: Behind host memory.
        tell: Told how many batches have landed, whenever that changes.

    Attributes:
        num_unsaved: Pages for which there was no room.
    """

    def __init__(
        self,
        pool: HostPool,
        mover: PageMover,
        copies: Copies,
        layout: RecordLayout,
        tiers: Sequence[LowerTier],
        tell: Callable[[int], None],
    ) -> None:
        self.num_unsaved = 0
        self._pool = pool
        self._mover = mover
        self._copies = copies
        self._layout = layout
        self._tiers = tiers
        self._tell = tell
        self._batches: deque[_Batch] = deque()

    def save(self, number: int, saves: Iterable[PageSaves]) -> None:
        """Begin to copy pages that host memory does not hold.

        Args:
            number: Of the batch, higher than those before it.
            saves: Its pages.
        """
        taken: list[tuple[_Page, HostSlot]] = []
        for page in self._pages(saves):
            slot = self._pool.reserve(page.key)
            if slot is None:
                self.num_unsaved += not self._pool.holds(page.key)
            else:
                taken.append((page, slot))
        firsts = range(0, len(taken), _PAGES_A_COPY)
        batch = _Batch(number, len(firsts))
        self._batches.append(batch)
        for first in firsts:
            self._copy(batch, taken[first : first + _PAGES_A_COPY])
        self._end_batches()

    def _pages(self, saves: Iterable[PageSaves]) -> Iterator[_Page]:
        for keys, first, page_ids in saves:
            names, parent = keys.of(first, first + len(page_ids))
            if parent is not None:
                self._pool.touch(parent)
            for key, page_id in zip(names, page_ids, strict=True):
                yield _Page(key, parent, page_id)
                parent = key

    def _copy(self, batch: _Batch, taken: list[tuple[_Page, HostSlot]]) -> None:
        page_ids = [page.page_id for page, _ in taken]

        def land(arrived: bool) -> None:
            batch.num_copies -= 1
            self._end_batches()
            if arrived:
                self._publish(taken)
            self._pool.unpin([slot for _, slot in taken])

        try:
            ticket = self._mover.save(page_ids, [slot.address for _, slot in taken])
        except RuntimeError:
            logger.exception("saving %d KV pages failed", len(taken))
            land(False)
            return
        self._copies.begin(ticket, len(taken) * self._layout.page_bytes, land)

    def _end_batches(self) -> None:
        batches, landed = self._batches, 0
        while batches and batches[0].num_copies == 0:
            landed = batches.popleft().number
        if landed:
            self._tell(landed)

    def _publish(self, taken: list[tuple[_Page, HostSlot]]) -> None:
        for page, slot in taken:
            self._pool.publish(slot, page.parent)
        # One that others saved meanwhile is not published, and theirs goes on.
        fresh = [slot for _, slot in taken if slot.published]
        for tier in self._tiers:
            tier.save([slot.key for slot in fresh if slot.key is not None])
