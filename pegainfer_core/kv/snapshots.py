"""Snapshots of state that cannot be cut into pages, such as what a recurrent layer carries.

A snapshot is the whole state behind the last token of a block. This knows slots and the blocks
they belong to; the memory behind slots and all copies are the model's business.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from pegainfer_core.kv.pool import PageError

if TYPE_CHECKING:
    from pegainfer_core.kv.chain import Block


class SnapshotSpec(NamedTuple):
    """A group of snapshots.

    Attributes:
        num_slots: Snapshots there is memory for, in slots 0 .. num_slots - 1.
        every_tokens: Distance of the borders at which to take them, a multiple of a page.
    """

    num_slots: int
    every_tokens: int


class SnapshotPool:
    """Slots of one group, each free, taken (being written) or held (the snapshot of a block).

    free + taken + held = total at any time. A held snapshot that nobody has pinned is given up when
    a slot is wanted: unlike a page, a snapshot stands alone, so no order among them must be kept.
    The one to go is the one whose last use, plus the tokens that a use of it saves, lies furthest
    back on a clock that each loss sets forward (GreedyDual: Young, Algorithmica 11, 1994); among
    equals the least recently used.

    Attributes:
        num_total: Slots.
        num_evicted: Snapshots given up for new ones so far.
        num_skipped: Snapshots not taken because every slot was taken or pinned.
    """

    def __init__(self, num_slots: int) -> None:
        """Start with every slot free."""
        self.num_total = num_slots
        self.num_evicted = 0
        self.num_skipped = 0
        self._free = list(range(num_slots - 1, -1, -1))
        self._slots: dict[Block, int] = {}
        self._saved_tokens: dict[Block, int] = {}
        self._idle: dict[Block, tuple[int, int]] = {}
        self._queue: list[tuple[int, int, Block]] = []
        self._clock = self._num_uses = 0
        self._pins: dict[Block, tuple[int, int]] = {}
        self._num_taken = 0

    @property
    def num_free(self) -> int:
        """Slots that hold nothing of use."""
        return len(self._free)

    @property
    def num_taken(self) -> int:
        """Slots being written."""
        return self._num_taken

    @property
    def num_held(self) -> int:
        """Slots with a snapshot, those pinned included."""
        return self.num_total - len(self._free) - self._num_taken

    @property
    def num_pinned(self) -> int:
        """Slots that are being read."""
        return len(self._pins)

    def holds(self, block: Block) -> bool:
        """Whether there is a snapshot of a block's end."""
        return block in self._slots

    def take(self) -> int | None:
        """A slot to write to, None when every one is taken or pinned."""
        if not self._free:
            if not self._idle:
                self.num_skipped += 1
                return None
            self._free.append(self._evict())
        self._num_taken += 1
        return self._free.pop()

    def give_back(self, slot: int) -> None:
        """Free a taken slot: what was to be written there is not wanted any more."""
        self._num_taken -= 1
        self._free.append(slot)

    def attach(self, slot: int, block: Block, saved_tokens: int) -> bool:
        """Make a taken slot, now written, a block's snapshot; freed when the block has one.

        Args:
            slot: Taken before.
            block: Which ends in this state.
            saved_tokens: Tokens that need not be computed where it is used.

        Returns:
            Whether it had none.
        """
        if block in self._slots:
            self.give_back(slot)
            return False
        self._num_taken -= 1
        self._slots[block] = slot
        self._saved_tokens[block] = saved_tokens
        self._rest(block)
        return True

    def pin(self, block: Block) -> int:
        """The slot of a block's snapshot, which stays as it is until `unpin`.

        Raises:
            PageError: There is none.
        """
        slot = self._slots.get(block)
        if slot is None:
            raise PageError("a snapshot was asked for that is not held")
        num_pins, _ = self._pins.get(block, (0, slot))
        self._pins[block] = (num_pins + 1, slot)
        self._idle.pop(block, None)
        return slot

    def unpin(self, block: Block) -> None:
        """Let go of a snapshot; it is now the most recently used one.

        Raises:
            PageError: It is not pinned.
        """
        if block not in self._pins:
            raise PageError("a snapshot was unpinned too often")
        num_pins, slot = self._pins.pop(block)
        if num_pins > 1:
            self._pins[block] = (num_pins - 1, slot)
        elif block in self._slots:
            self._rest(block)
        else:
            self._free.append(slot)

    def forget(self, block: Block) -> None:
        """Drop the snapshot of a block that cannot be matched any more, if there is one.

        Where it is pinned, its slot is free with the last `unpin`.
        """
        slot = self._slots.pop(block, None)
        if slot is None:
            return
        del self._saved_tokens[block]
        if block not in self._pins:
            del self._idle[block]
            self._free.append(slot)

    def _rest(self, block: Block) -> None:
        """Put a block's snapshot, just used, where it may be given up."""
        self._num_uses += 1
        place = (self._clock + self._saved_tokens[block], self._num_uses)
        self._idle[block] = place
        heappush(self._queue, (*place, block))
        if len(self._queue) > 2 * self.num_total:
            # Those that were used or forgotten since they were queued.
            self._queue = [(*place, block) for block, place in self._idle.items()]
            heapify(self._queue)

    def _evict(self) -> int:
        """Give up an idle snapshot; returns its slot."""
        while True:
            when, use, block = heappop(self._queue)
            if self._idle.get(block) == (when, use):
                break
        self._clock = when
        del self._idle[block], self._saved_tokens[block]
        self.num_evicted += 1
        return self._slots.pop(block)
