"""Copies new pages to host memory, and from there to the tiers behind it. Runs on its thread."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pegainfer_core.backend import PageMover
    from pegainfer_core.kv import PageKey
    from pegainfer_core.offload.copies import Copies
    from pegainfer_core.offload.host_pool import HostPool, HostSlot
    from pegainfer_core.offload.lower_tier import LowerTier
    from pegainfer_core.offload.page_hold import PageHold
    from pegainfer_core.offload.record import RecordLayout

logger = logging.getLogger(__name__)

_PAGES_A_COPY: Final = 64
"""Pages are given back when the last of their copy has landed."""


class PageSave(NamedTuple):
    """A page to be saved.

    Attributes:
        key: Names its content.
        parent: Key of the page before it, None for a first page.
        page_id: Where it is; nobody writes it until it is given back.
        hold: Keeps it there; counted down by whoever is told that it was given back.
    """

    key: PageKey
    parent: PageKey | None
    page_id: int
    hold: PageHold


class Saver:
    """Saves each page once.

    Args:
        pool: Host memory.
        mover: Copies.
        copies: Those from the device, under way.
        layout: Of records.
        tiers: Behind host memory.
        give_back: Told of the holds of pages, one for each, that need not be held for it any more.

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
        give_back: Callable[[list[PageHold]], None],
    ) -> None:
        self.num_unsaved = 0
        self._pool = pool
        self._mover = mover
        self._copies = copies
        self._layout = layout
        self._tiers = tiers
        self._give_back = give_back

    def save(self, pages: Sequence[PageSave]) -> None:
        """Begin to copy pages that host memory does not hold."""
        taken: list[tuple[PageSave, HostSlot]] = []
        needless: list[PageHold] = []
        for page in pages:
            slot = self._pool.reserve(page.key)
            if slot is None:
                needless.append(page.hold)
                self.num_unsaved += not self._pool.holds(page.key)
            else:
                taken.append((page, slot))
        if needless:
            self._give_back(needless)
        for first in range(0, len(taken), _PAGES_A_COPY):
            self._copy(taken[first : first + _PAGES_A_COPY])

    def _copy(self, taken: list[tuple[PageSave, HostSlot]]) -> None:
        page_ids = [page.page_id for page, _ in taken]

        def land(arrived: bool) -> None:
            self._give_back([page.hold for page, _ in taken])
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

    def _publish(self, taken: list[tuple[PageSave, HostSlot]]) -> None:
        for page, slot in taken:
            if self._tiers:
                self._layout.seal(page.key, slot.buffer)
            self._pool.publish(slot, page.parent)
        # One that others saved meanwhile is not published, and theirs goes on.
        fresh = [slot for _, slot in taken if slot.published]
        for tier in self._tiers:
            tier.save(fresh)
