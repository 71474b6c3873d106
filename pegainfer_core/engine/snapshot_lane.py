"""Saves snapshots of states beside their sequences' pages, and has them brought back.

The engine's half of it. Knows no tokens and no sequences: those who ask know which snapshot they
want.
"""

from __future__ import annotations

from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from pegainfer_core.kv import PageKey
from pegainfer_core.offload import PageKeys, Restore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pegainfer_core.backend import Fence
    from pegainfer_core.backend.page_mover import StateMover
    from pegainfer_core.kv import Block, BlockChain, KvManager
    from pegainfer_core.offload import HostPool, OffloadThread, PageSaves

STATE_GROUP: Final = 1
"""KV group of the snapshots' records."""

Answer = tuple[object, list[bool]]
"""Who asked, and which of the snapshots the tiers hold."""


class SnapshotLane:
    """Between the slots of snapshots on the device and an offload thread of their own.

    What waits to be copied is lent by the snapshot group: nobody writes there meanwhile. No more
    than half of all slots are, so that new snapshots find room.

    Args:
        kv: Owns the slots, in one group of snapshots.
        pool: Records in host memory.
        thread: Copies, and asks the tiers behind host memory; closed with this.
        mover: The backend's, for its fences.
        identity: Digest of all that shapes states beside their tokens.
        first_slot: Where the group's slots begin among the mover's.

    Attributes:
        pool: Host memory.
        thread: The same.
        failed: The thread has ended, and brings nothing more.
        num_unsaved: Snapshots that were not saved because too many waited.
    """

    def __init__(
        self,
        kv: KvManager,
        pool: HostPool,
        thread: OffloadThread,
        mover: StateMover,
        identity: str,
        first_slot: int,
    ) -> None:
        self.pool, self.thread = pool, thread
        self.failed = False
        self.num_unsaved = 0
        self._groups = kv.snapshots
        (self._slots,) = kv.snapshots.pools
        self._mover = mover
        self._identity = identity
        self._first_slot = first_slot
        self._lent: dict[int, Block] = {}
        self._num_batches = 0
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        kv.snapshots.kept = self._keep

    @property
    def num_lent(self) -> int:
        """Snapshots on the device that are being copied."""
        return len(self._lent)

    def keys(self, pages: PageKeys, first: int, end: int) -> list[PageKey]:
        """Of snapshots behind a sequence's blocks [first, end), of which there may be few."""
        return [PageKey(key.digest, STATE_GROUP) for key in pages.of(first, end)[0]]

    def held_border(self, pages: PageKeys, first: int, end: int) -> int:
        """Most blocks, of more than `first` and up to `end`, with a snapshot in host memory; or 0.

        The chain must reach to `end`.
        """
        keys = self.keys(pages, first, end)
        return next(
            (first + i for i in range(end - first, 0, -1) if self.pool.holds(keys[i - 1])), 0
        )

    def ask(self, asker: object, keys: list[PageKey]) -> None:
        """Ask the tiers behind host memory for snapshots; `answers` brings what they say."""
        self.thread.ask(keys, lambda held: self._answers.put((asker, held)))

    def answers(self) -> Iterator[Answer]:
        """What was answered since the last call."""
        while not self._answers.empty():
            yield self._answers.get()

    def news(self) -> Iterator[Restore]:
        """Restores that were found or are finished since the last call; takes note of the rest."""
        news = self.thread.news
        while not news.empty():
            item = news.get()
            if isinstance(item, Restore):
                yield item
            elif item is None:
                self._give_up()
            else:
                self._land(item)

    def restore(self, key: PageKey, slot: int) -> Restore:
        """Bring a snapshot to a slot that was taken for it."""
        restore = Restore([key], None, self.pool.lease_held([key]))
        if restore.slots[0] is None:
            self.thread.search(restore)
        else:
            self._give(restore, slot)
            self.thread.begin(restore)
        return restore

    def go_on(self, restore: Restore, slot: int) -> None:
        """Have a snapshot copied that was found behind host memory."""
        self._give(restore, slot)
        self.thread.go_on(restore)

    def close(self) -> None:
        """End the thread behind what is being saved."""
        self._groups.kept = None
        self.thread.close()

    def _keep(self, chain: BlockChain, num_blocks: int) -> None:
        """Save a snapshot that is there to stay."""
        if self.failed:
            return
        (key,) = self.keys(PageKeys(self._identity, chain), num_blocks - 1, num_blocks)
        if self.pool.holds(key):
            self.pool.touch(key)
        elif 2 * (len(self._lent) + 1) > self._slots.num_total:
            self.num_unsaved += 1
        else:
            block = chain.blocks[num_blocks - 1]
            (slot,) = self._groups.lend(block)
            self._num_batches += 1
            self._lent[self._num_batches] = block
            saves: list[PageSaves] = [(_Named(key), 0, [self._first_slot + slot])]
            self.thread.save(self._num_batches, saves)

    def _land(self, num_batches: int) -> None:
        for number in [number for number in self._lent if number <= num_batches]:
            self._groups.take_back(self._lent.pop(number))

    def _give(self, restore: Restore, slot: int) -> None:
        fence: Fence | None = self._mover.fence()
        restore.fence = fence
        restore.page_ids = [self._first_slot + slot]

    def _give_up(self) -> None:
        self.failed = True
        self._land(self._num_batches)


class _Named:
    """The name of one snapshot; those of a sequence do not build on each other."""

    def __init__(self, key: PageKey) -> None:
        self._key = key

    def of(self, first: int, end: int) -> tuple[list[PageKey], PageKey | None]:
        """The key, and nothing before it."""
        return [self._key], None
