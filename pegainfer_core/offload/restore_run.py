"""The copying of one restore: reads ahead of the copies to the device, which come in order."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pegainfer_core.backend import PageMover
    from pegainfer_core.offload.copies import Copies
    from pegainfer_core.offload.host_pool import HostPool, HostSlot
    from pegainfer_core.offload.lower_tier import LowerTier
    from pegainfer_core.offload.restore import Restore
    from pegainfer_core.offload.tier_call import TierCall

logger = logging.getLogger(__name__)

_PAGES_A_READ: Final = 16
_READS_AHEAD: Final = 4
_PAGES_A_COPY: Final = 256


class RestoreRun:
    """Fills host slots from tiers, and pages from host slots, up to `restore.limit`.

    A page that cannot be had lowers the limit; what lies before it still counts.

    Args:
        restore: What is restored; its leased slots are given up in the end.
        sources: The tier of each page.
        pool: Host memory.
        mover: Copies.
        copies: Those to the device, under way.
        page_bytes: Size of one page.
        tiers: Behind host memory, by name.
        finish: Called once, when nothing is under way to the pages.
    """

    def __init__(
        self,
        restore: Restore,
        sources: list[str],
        pool: HostPool,
        mover: PageMover,
        copies: Copies,
        page_bytes: int,
        tiers: Mapping[str, LowerTier],
        finish: Callable[[], None],
    ) -> None:
        self._restore = restore
        self._sources = sources
        self._pool = pool
        self._mover = mover
        self._copies = copies
        self._page_bytes = page_bytes
        self._tiers = tiers
        self._finish = finish
        self._num_promised = len(sources)
        self._num_asked = 0
        self._num_issued = 0
        self._num_flying = 0
        self._reads: list[TierCall[list[bool]]] = []
        self._is_over = False

    def read_on(self) -> None:
        """Keep a few reads under way."""
        restore = self._restore
        while self._num_asked < restore.limit and len(self._reads) < _READS_AHEAD:
            first = self._num_asked
            if restore.slots[first] is not None:
                self._num_asked += 1
                continue
            end = self._end_of_read(first)
            self._num_asked = end
            self._read(first, end)

    def advance(self) -> None:
        """Copy what is ready, in order, once there are pages for it."""
        restore = self._restore
        self.read_on()
        first = end = self._num_issued
        last = min(restore.limit, first + _PAGES_A_COPY, len(restore.page_ids))
        while end < last and restore.slots[end] is not None:
            end += 1
        if end > first:
            self._copy(first, end)
            self.advance()
            return
        self._end_if_done()

    def settle_for(self, num_pages: int) -> None:
        """No more than so many are wanted."""
        self._num_promised = min(self._num_promised, num_pages)
        self._lower(num_pages)

    def stop(self) -> None:
        """Begin nothing more."""
        self._lower(self._num_issued)
        for call in self._reads:
            call.cancel()
        self._end_if_done()

    def _end_of_read(self, first: int) -> int:
        source, slots = self._sources[first], self._restore.slots
        end = first
        while (
            end < min(first + _PAGES_A_READ, self._restore.limit)
            and self._sources[end] == source
            and slots[end] is None
        ):
            end += 1
        return end

    def _read(self, first: int, end: int) -> None:
        """Ask a tier for some pages; those that came to host memory meanwhile need no reading."""
        indices, slots = [], []
        for index in range(first, end):
            key = self._restore.keys[index]
            slot = self._pool.reserve(key)
            if slot is not None:
                indices.append(index)
                slots.append(slot)
                continue
            (held,) = self._pool.lease_held([key])
            if held is None:
                self._lower(index)  # no slot is free
                break
            self._restore.slots[index] = held
        if slots:
            self._load(indices, slots)

    def _load(self, indices: list[int], slots: list[HostSlot]) -> None:
        calls: list[TierCall[list[bool]]] = []

        def loaded(found: list[bool]) -> None:
            self._reads.remove(calls[0])
            for index, slot, held in zip(indices, slots, found, strict=True):
                self._arrive(index, slot) if held else self._lower(index)
            if not self._is_over:
                self.advance()

        tier = self._tiers[self._sources[indices[0]]]
        calls.append(tier.load(slots, loaded))
        self._reads.append(calls[0])

    def _arrive(self, index: int, slot: HostSlot) -> None:
        """Promote a page to host memory, whether or not anybody still waits for it."""
        restore = self._restore
        slot.is_sealed = True
        self._pool.publish(slot, restore.keys[index - 1] if index else restore.parent)
        if self._is_over:
            self._pool.unpin([slot])
        else:
            restore.slots[index] = slot

    def _copy(self, first: int, end: int) -> None:
        restore = self._restore
        addresses = [slot.address for slot in restore.slots[first:end] if slot is not None]
        self._num_issued = end
        self._num_flying += 1
        try:
            ticket = self._mover.load(addresses, restore.page_ids[first:end], restore.fence)
        except RuntimeError:
            logger.exception("restoring %d KV pages failed", end - first)
            self._land(first, end, arrived=False)
            return
        self._copies.begin(
            ticket,
            (end - first) * self._page_bytes,
            lambda arrived: self._land(first, end, arrived=arrived),
        )

    def _land(self, first: int, end: int, *, arrived: bool) -> None:
        self._num_flying -= 1
        if arrived and self._restore.num_landed == first:
            self._restore.num_landed = end
        elif not arrived:
            self._lower(first)
        self._end_if_done()

    def _lower(self, limit: int) -> None:
        self._restore.limit = min(self._restore.limit, limit)

    def _end_if_done(self) -> None:
        restore = self._restore
        if self._is_over or self._num_flying or self._num_issued < restore.limit:
            return
        self._is_over = True
        restore.num_landed = min(restore.num_landed, restore.limit)
        restore.failed = restore.num_landed < self._num_promised and not restore.cancelled
        for call in self._reads:
            call.cancel()
        for source in self._sources[: restore.num_landed]:
            restore.num_by_source[source] = restore.num_by_source.get(source, 0) + 1
        self._pool.unpin([slot for slot in restore.slots if slot is not None])
        restore.slots = []
        self._finish()
