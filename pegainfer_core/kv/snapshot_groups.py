"""All snapshot groups of a manager, and what its sequences have to do with them.

A prefix can be taken over only where every group has a snapshot of its end, so slots are
pinned, taken and given back for all groups at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pegainfer_core.kv.pool import PageError
from pegainfer_core.kv.snapshots import SnapshotPool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pegainfer_core.kv.chain import Block, BlockChain
    from pegainfer_core.kv.paged_sequence import PagedSequence
    from pegainfer_core.kv.snapshots import SnapshotSpec


class _Restore(NamedTuple):
    block: Block
    slots: tuple[int, ...]


class _Taken(NamedTuple):
    num_blocks: int
    slots: tuple[int, ...]
    passing: bool


class _Passing(NamedTuple):
    block: Block
    num_blocks: int
    base_blocks: int


class SnapshotGroups:
    """Pools of the groups, and the slots that live sequences read from or write to.

    A scheduler asks for the `border` at which a chunk has to end, `take`s slots when it plans that
    step, copies `sources` into a started sequence's state, and says `restored`. The rest is the
    manager's: it makes a snapshot known once its step has completed, and gives up what a sequence
    holds when that lets go of its pages.

    Attributes:
        pools: One for each group, in the order of their specs; read their counts only.
        every_blocks: Distance of borders, the same for all groups; 0 without groups.
        kept: Told of a sequence's chain and a number of its blocks, behind which there is a
            snapshot now that is there to stay; of passing ones, when the sequence leaves.
    """

    def __init__(self, specs: Collection[SnapshotSpec], page_tokens: int) -> None:
        """Start with every slot free.

        Args:
            specs: Of the groups; there may be none.
            page_tokens: Tokens in one block.

        Raises:
            ValueError: The borders of a group are not at block borders, or not those of the others.
        """
        distances = {spec.every_tokens for spec in specs}
        if len(distances) > 1:
            raise ValueError(f"snapshot groups need one common distance, not {sorted(distances)}")
        every_tokens = distances.pop() if distances else 0
        if every_tokens % page_tokens or (specs and every_tokens < 1):
            raise ValueError(f"every_tokens must be a multiple of the page's {page_tokens} tokens")
        self.every_blocks = every_tokens // page_tokens
        self.pools = tuple(SnapshotPool(spec.num_slots) for spec in specs)
        self.kept: Callable[[BlockChain, int], None] | None = None
        self._page_tokens = page_tokens
        self._restores: dict[BlockChain, _Restore] = {}
        self._taken: dict[BlockChain, list[_Taken]] = {}
        self._passing: dict[BlockChain, _Passing] = {}

    def __bool__(self) -> bool:
        """Whether there is any group."""
        return bool(self.pools)

    def border(self, start: int, stop: int) -> int:
        """The last border in (start, stop], 0 when there is none.

        A prompt's chunk that is to end in a snapshot has to end there.

        Args:
            start: Tokens that are computed already.
            stop: Tokens that may be computed after the step.
        """
        distance = self.every_blocks * self._page_tokens
        border = stop // distance * distance if distance else 0
        return border if border > start else 0

    def known_tokens(self, sequence: PagedSequence) -> int:
        """Tokens of an admitted sequence up to the last border that the cache knows.

        More than its prefix where a snapshot is missing: kept there, it would serve the next one.
        """
        if sequence.chain is None or not self.pools:
            return 0
        return self.border(0, sequence.chain.num_known * self._page_tokens)

    def take(
        self, sequence: PagedSequence, num_tokens: int, *, passing: bool = False
    ) -> tuple[int, ...]:
        """Slots, by group, to copy a sequence's state to behind its first `num_tokens` tokens.

        Call it when the step that computes them is planned.

        Args:
            sequence: Holds pages.
            num_tokens: At a border.
            passing: Whether it is of no use once a later one of the sequence's passing ones is
                known: of those, only the newest is kept.

        Returns:
            Nothing when it cannot be kept: no room, or nobody could find it.

        Raises:
            PageError: That is no border.
        """
        chain = sequence.chain
        if chain is None or not self.pools:
            return ()
        num_blocks, rest = divmod(num_tokens, self._page_tokens)
        if rest or num_blocks % self.every_blocks or not num_blocks:
            raise PageError(f"{num_tokens} tokens do not end at a border of snapshots")
        if chain.closed:
            return ()
        slots = self.take_slots()
        if slots:
            self._taken.setdefault(chain, []).append(_Taken(num_blocks, slots, passing))
        return slots

    def take_slots(self) -> tuple[int, ...]:
        """Slots, by group, that nobody else writes to; nothing when there is no room.

        They go back by `give_back`, or to a sequence by `adopt`.
        """
        slots: list[int] = []
        for pool in self.pools:
            slot = pool.take()
            if slot is None:
                self.give_back(slots)
                return ()
            slots.append(slot)
        return tuple(slots)

    def give_back(self, slots: Iterable[int]) -> None:
        """Free taken slots: what they hold is not wanted any more."""
        for pool, slot in zip(self.pools, slots, strict=False):
            pool.give_back(slot)

    def adopt(self, sequence: PagedSequence, num_tokens: int, slots: tuple[int, ...]) -> bool:
        """Make taken slots, filled from elsewhere, the snapshot that a sequence starts from.

        Args:
            sequence: Its pages up to there are published.
            num_tokens: At a border.
            slots: By group; not the caller's any more.

        Returns:
            Whether it can start there: not if a foreign block is in the way of its own.
        """
        chain, num_blocks = sequence.chain, num_tokens // self._page_tokens
        if chain is None or len(chain.blocks) != num_blocks:
            self.give_back(slots)
            return False
        saved_tokens = (num_blocks - self._base_blocks(chain, num_blocks)) * self._page_tokens
        for pool, slot in zip(self.pools, slots, strict=True):
            pool.attach(slot, chain.blocks[-1], saved_tokens)
        self._unpin(chain)
        self.begin(chain)
        return True

    def lend(self, block: Block) -> tuple[int, ...]:
        """Slots, by group, of a block's snapshot, which stay as they are until `take_back`."""
        return tuple(pool.pin(block) for pool in self.pools)

    def take_back(self, block: Block) -> None:
        """Nobody reads what was lent any more."""
        for pool in self.pools:
            pool.unpin(block)

    def sources(self, sequence: PagedSequence) -> tuple[int, ...]:
        """Slots, by group, that hold the state behind an admitted sequence's prefix.

        They stay as they are until `restored`; empty when the sequence starts from nothing.
        """
        restore = self._restores.get(sequence.chain) if sequence.chain is not None else None
        return restore.slots if restore is not None else ()

    def restored(self, sequence: PagedSequence) -> None:
        """Say that a sequence's state was copied, or that nothing can overtake the copy."""
        if sequence.chain is not None:
            self._unpin(sequence.chain)

    def usable(self, blocks: list[Block]) -> int:
        """How many leading blocks end in a snapshot of every group; 0 for none."""
        pools, every = self.pools, self.every_blocks
        if not every or not all(pool.num_held for pool in pools):
            return 0
        for num_blocks in range(len(blocks) // every * every, 0, -every):
            if all(pool.holds(blocks[num_blocks - 1]) for pool in pools):
                return num_blocks
        return 0

    def begin(self, chain: BlockChain) -> None:
        """Pin what a sequence starts from: the snapshots behind its matched blocks."""
        if chain.blocks and self.pools:
            block = chain.blocks[-1]
            slots = tuple(pool.pin(block) for pool in self.pools)
            self._restores[chain] = _Restore(block, slots)

    def settle(self, chain: BlockChain, num_completed_blocks: int) -> None:
        """Attach what completed steps have written to the blocks that were published for it."""
        taken = self._taken.get(chain)
        if taken is None:
            return
        while taken and taken[0].num_blocks <= num_completed_blocks:
            num_blocks, slots, passing = taken.pop(0)
            if num_blocks > len(chain.blocks):
                # A foreign block has this one's hash, so nobody will find it.
                self.give_back(slots)
                continue
            last = self._passing.pop(chain, None) if passing else None
            base = last.base_blocks if last is not None else self._base_blocks(chain, num_blocks)
            block, saved_tokens = chain.blocks[num_blocks - 1], num_blocks - base
            saved_tokens *= self._page_tokens
            parts = zip(self.pools, slots, strict=True)
            is_new = all([pool.attach(slot, block, saved_tokens) for pool, slot in parts])
            if last is not None:
                self.forget(last.block)
            if is_new and passing:
                self._passing[chain] = _Passing(block, num_blocks, base)
            elif is_new and self.kept is not None:
                self.kept(chain, num_blocks)
        if not taken:
            del self._taken[chain]

    def leave(self, chain: BlockChain) -> None:
        """Take everything from a sequence that lets go of its pages."""
        self._unpin(chain)
        last = self._passing.pop(chain, None)
        if last is not None and self.kept is not None and self.pools[0].holds(last.block):
            self.kept(chain, last.num_blocks)
        for taken in self._taken.pop(chain, ()):
            self.give_back(taken.slots)

    def forget(self, block: Block) -> None:
        """Drop the snapshots of a block that cannot be matched any more."""
        for pool in self.pools:
            pool.forget(block)

    def _unpin(self, chain: BlockChain) -> None:
        restore = self._restores.pop(chain, None)
        if restore is not None:
            for pool in self.pools:
                pool.unpin(restore.block)

    def _base_blocks(self, chain: BlockChain, num_blocks: int) -> int:
        """Blocks up to the last snapshot before these, from which they could be computed."""
        holds = self.pools[0].holds
        before = reversed(chain.blocks[: num_blocks - 1])
        distance = next((i for i, block in enumerate(before, 1) if holds(block)), num_blocks)
        return num_blocks - distance
