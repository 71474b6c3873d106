"""Pages in host memory: slots that hold records, found by key, given up leaf first.

Knows neither devices nor tiers. Used by the engine's thread and the offload thread: every method
takes a lock, for as long as it takes to look at the keys it was given.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from pegainfer_core.offload.record import RECORD_ALIGNMENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pegainfer_core.backend import HostSlab
    from pegainfer_core.kv import PageKey


class HostSlot:
    """Room for one record.

    Attributes:
        address: Where it begins.
        buffer: All of it.
        key: What it holds or is about to hold; None while it is free.
        parent: The slot of the page before its page, if that was there when it was published.
        num_children: Slots whose parent it is.
        num_pins: Copies and calls that use it.
        published: Whether its content is complete and can be found.
        is_sealed: Whether it has a trailer that proves it.
        last_use: When it was used last, in uses of all slots.
        era: When it was reserved: how often the pool had been cleared by then.
    """

    __slots__ = (
        "address",
        "buffer",
        "era",
        "is_sealed",
        "key",
        "last_use",
        "num_children",
        "num_pins",
        "parent",
        "published",
    )

    def __init__(self, address: int, buffer: memoryview) -> None:
        self.address = address
        self.buffer = buffer
        self.key: PageKey | None = None
        self.parent: HostSlot | None = None
        self.num_children = 0
        self.num_pins = 0
        self.published = False
        self.era = 0
        self.last_use = 0
        self.is_sealed = False


class HostPool:
    """Slots of one size in slabs, and the index of what they hold.

    A pinned slot is never given up. Of the others, the least recently used goes first, but none
    before those that follow it: the rest of a prefix is worth nothing without its beginning.

    Args:
        record_bytes: Size of a slot, a multiple of the records' alignment.

    Attributes:
        record_bytes: Size of a slot.
        num_slots: Slots there are by now.
        num_evicted: Records given up for others.
    """

    def __init__(self, record_bytes: int) -> None:
        if record_bytes % RECORD_ALIGNMENT:
            raise ValueError(f"record_bytes must be a multiple of 4096, not {record_bytes}")
        self.record_bytes = record_bytes
        self.num_slots = 0
        self.num_evicted = 0
        self._lock = threading.Lock()
        self._free: list[HostSlot] = []
        self._slabs: list[tuple[HostSlab, int]] = []
        self._era = self._num_uses = 0
        self._by_key: dict[PageKey, HostSlot] = {}
        self._leaves: OrderedDict[PageKey, HostSlot] = OrderedDict()

    def __len__(self) -> int:
        """Records that can be found."""
        return len(self._by_key)

    def add(self, slab: HostSlab) -> None:
        """Take a slab into use."""
        with self._lock:
            self._slabs.append((slab, 0))
            self.num_slots += len(slab.memory) // self.record_bytes

    def lease(self, keys: Iterable[PageKey]) -> list[HostSlot]:
        """Pin the slots of the keys up to the first that is not held."""
        leased = []
        with self._lock:
            for key in keys:
                slot = self._by_key.get(key)
                if slot is None:
                    break
                self._pin(slot)
                leased.append(slot)
        return leased

    def lease_held(self, keys: Iterable[PageKey]) -> list[HostSlot | None]:
        """Pin the slots of all keys that are held; None stands for the others."""
        with self._lock:
            slots = [self._by_key.get(key) for key in keys]
            for slot in slots:
                if slot is not None:
                    self._pin(slot)
        return slots

    def holds(self, key: PageKey) -> bool:
        """Whether a record can be found."""
        return key in self._by_key

    def touch(self, key: PageKey) -> None:
        """Count a record, and with it those before it, as used now."""
        with self._lock:
            slot = self._by_key.get(key)
            if slot is not None:
                self._num_uses += 1
                slot.last_use = self._num_uses
                if key in self._leaves:
                    self._leaves.move_to_end(key)

    def pin(self, slots: Iterable[HostSlot]) -> None:
        """Pin slots once more that are pinned already."""
        with self._lock:
            for slot in slots:
                slot.num_pins += 1

    def reserve(self, key: PageKey) -> HostSlot | None:
        """A pinned slot for new content; None when all are pinned, or the key is held."""
        with self._lock:
            if key in self._by_key:
                return None
            slot = self._take()
            if slot is not None:
                slot.key = key
                slot.num_pins = 1
                slot.era = self._era
                slot.is_sealed = False
        return slot

    def publish(self, slot: HostSlot, parent: PageKey | None) -> None:
        """Let a reserved slot, whose content is complete now, be found; it stays pinned.

        Args:
            slot: From `reserve`.
            parent: Key of the page before its page.
        """
        with self._lock:
            if slot.key is None or slot.key in self._by_key or slot.era != self._era:
                return  # the same content came from elsewhere, or all was to be forgotten
            slot.published = True
            self._by_key[slot.key] = slot
            holder = self._by_key.get(parent) if parent is not None else None
            if holder is not None:
                slot.parent = holder
                holder.num_children += 1
                self._leaves.pop(parent, None)  # type: ignore[arg-type]

    def unpin(self, slots: Sequence[HostSlot]) -> None:
        """Give up one pin of each, the last first, so that beginnings stay longest."""
        with self._lock:
            self._num_uses += 1
            for slot in reversed(slots):
                slot.num_pins -= 1
                if slot.num_pins == 0:
                    self._rest(slot)

    def clear(self) -> None:
        """Forget every record; pinned slots become free when their last pin goes."""
        with self._lock:
            self._era += 1
            slots = list(self._by_key.values())
            self._by_key.clear()
            self._leaves.clear()
            for slot in slots:
                slot.published = False
                slot.parent = None
                slot.num_children = 0
                if slot.num_pins == 0:
                    self._recycle(slot)

    @property
    def num_pinned(self) -> int:
        """Slots that cannot be given up now; for tests and metrics, looks at every record."""
        with self._lock:
            idle = sum(slot.num_pins == 0 for slot in self._by_key.values())
            return self.num_slots - idle - self._num_free()

    def _pin(self, slot: HostSlot) -> None:
        if slot.num_pins == 0 and slot.key is not None:
            self._leaves.pop(slot.key, None)
        slot.num_pins += 1

    def _rest(self, slot: HostSlot) -> None:
        slot.last_use = self._num_uses
        if not slot.published:
            self._recycle(slot)
        elif slot.num_children == 0 and slot.key is not None:
            self._leaves[slot.key] = slot

    def _take(self) -> HostSlot | None:
        if self._free:
            return self._free.pop()
        fresh = self._fresh()
        if fresh is not None:
            return fresh
        if not self._leaves:
            return None
        self._evict()
        return self._free.pop()

    def _fresh(self) -> HostSlot | None:
        """A slot never used so far: objects for all of them at once would take long to make."""
        if not self._slabs:
            return None
        slab, offset = self._slabs[-1]
        end = offset + self.record_bytes
        if end + self.record_bytes > len(slab.memory):
            self._slabs.pop()
        else:
            self._slabs[-1] = (slab, end)
        if end > len(slab.memory):
            return self._fresh()
        return HostSlot(slab.address + offset, slab.memory[offset:end])

    def _evict(self) -> None:
        key, slot = self._leaves.popitem(last=False)
        del self._by_key[key]
        self.num_evicted += 1
        parent = slot.parent
        if parent is not None and parent.published:
            parent.num_children -= 1
            if parent.num_children == 0 and parent.num_pins == 0 and parent.key is not None:
                self._leaves[parent.key] = parent
                if parent.last_use <= slot.last_use:
                    # Not used since the page that followed it.
                    self._leaves.move_to_end(parent.key, last=False)
        slot.published = False
        self._recycle(slot)

    def _recycle(self, slot: HostSlot) -> None:
        slot.key = None
        slot.parent = None
        slot.num_children = 0
        self._free.append(slot)

    def _num_free(self) -> int:
        size = self.record_bytes
        unused = sum((len(slab.memory) - offset) // size for slab, offset in self._slabs)
        return len(self._free) + unused
