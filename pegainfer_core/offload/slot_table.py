"""Which slot holds which record, and whose turn it is to go. Pure: knows no file and no bytes.

Not thread-safe: its user holds a lock.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

W = TypeVar("W")


class PendingWrite(Generic[W]):
    """A record on its way into a slot.

    Attributes:
        slot: Where it goes.
        waiters: Who wants to know how it ends.
        dropped: It was dropped meanwhile.
    """

    __slots__ = ("dropped", "slot", "waiters")

    def __init__(self, slot: int, waiter: W) -> None:
        self.slot = slot
        self.waiters = [waiter]
        self.dropped = False


class SlotTable(Generic[W]):
    """The slots of one group: free, being written, holding a record, or given up but still read.

    The record used longest ago goes first, unless it is being read.

    Attributes:
        num_slots: All slots.
        num_evicted: Records given up for others so far.
        writing: Records on their way, by digest.
    """

    def __init__(self) -> None:
        self.num_slots = 0
        self.num_evicted = 0
        self.writing: dict[bytes, PendingWrite[W]] = {}
        self._held: OrderedDict[bytes, int] = OrderedDict()
        self._free: list[int] = []
        self._readers: Counter[int] = Counter()
        self._unwanted: set[int] = set()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def num_free(self) -> int:
        """Slots that hold nothing."""
        return len(self._free)

    def add_slots(self, slots: Iterable[int]) -> None:
        """More room."""
        for slot in slots:
            heapq.heappush(self._free, slot)
            self.num_slots += 1

    def adopt(self, digest: bytes, slot: int) -> None:
        """A record that was there already; later ones count as used later."""
        self.num_slots += 1
        self._held[digest] = slot

    def find(self, digest: bytes) -> int | None:
        """Where a record lies; it counts as used now."""
        slot = self._held.get(digest)
        if slot is not None:
            self._held.move_to_end(digest)
        return slot

    def pin(self, slot: int) -> None:
        """One more reads a slot."""
        self._readers[slot] += 1

    def unpin(self, slot: int) -> None:
        """One less reads it."""
        self._readers[slot] -= 1
        if self._readers[slot] == 0:
            del self._readers[slot]
            if slot in self._unwanted:
                self._unwanted.remove(slot)
                heapq.heappush(self._free, slot)

    def take(self) -> int | None:
        """A slot for a new record, the lowest free one or that of the record given up for it."""
        if self._free:
            return heapq.heappop(self._free)
        digest = self._oldest()
        if digest is None:
            return None
        self.num_evicted += 1
        return self._held.pop(digest)

    def start(self, digest: bytes, slot: int, waiter: W) -> None:
        """A record is on its way into a slot that was taken."""
        self.writing[digest] = PendingWrite(slot, waiter)

    def publish(self, digest: bytes) -> PendingWrite[W]:
        """A record is in its slot, and is found from now on."""
        write = self.writing.pop(digest)
        self._held[digest] = write.slot
        return write

    def abandon(self, digest: bytes) -> PendingWrite[W]:
        """A record did not reach its slot, which is free again."""
        write = self.writing.pop(digest)
        heapq.heappush(self._free, write.slot)
        return write

    def forget(self, digest: bytes) -> int | None:
        """Give a record up; returns its slot, which nobody gets before `retire`."""
        if digest in self.writing:
            self.writing[digest].dropped = True
        return self._held.pop(digest, None)

    def retire(self, slot: int) -> None:
        """A forgotten record's slot may be used again, once nobody reads it."""
        if self._readers[slot]:
            self._unwanted.add(slot)
        else:
            del self._readers[slot]
            heapq.heappush(self._free, slot)

    def _oldest(self) -> bytes | None:
        return next((d for d, slot in self._held.items() if slot not in self._readers), None)
