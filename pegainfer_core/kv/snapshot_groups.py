"""All snapshot groups of a manager, and what its sequences have to do with them.

A prefix can be taken over only where every group has a snapshot of its end, so slots are
pinned, taken and given back for all groups at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pegainfer_core.kv.snapshots import SnapshotPool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.kv.chain import Block, BlockChain
    from pegainfer_core.kv.snapshots import SnapshotSpec


class _Restore(NamedTuple):
    block: Block
    slots: tuple[int, ...]


class _Taken(NamedTuple):
    num_blocks: int
    slots: tuple[int, ...]


class SnapshotGroups:
    """Pools of the groups, and the slots that live sequences read from or write to.

    Attributes:
        pools: One for each group, in the order of their specs.
        every_blocks: Distance of borders, the same for all groups.
    """

    def __init__(self, specs: Sequence[SnapshotSpec], page_tokens: int) -> None:
        """Start with every slot free.

        Args:
            specs: Of at least one group.
            page_tokens: Tokens in one block.

        Raises:
            ValueError: The borders of a group are not at block borders, or not those of the others.
        """
        distances = {spec.every_tokens for spec in specs}
        if len(distances) != 1:
            raise ValueError(f"snapshot groups need one common distance, not {sorted(distances)}")
        self.every_blocks, rest = divmod(distances.pop(), page_tokens)
        if rest or self.every_blocks < 1:
            raise ValueError(f"every_tokens must be a multiple of the page's {page_tokens} tokens")
        self.pools = tuple(SnapshotPool(spec.num_slots) for spec in specs)
        self._restores: dict[BlockChain, _Restore] = {}
        self._taken: dict[BlockChain, list[_Taken]] = {}

    def usable(self, blocks: list[Block]) -> int:
        """How many leading blocks end in a snapshot of every group; 0 for none."""
        pools = self.pools
        for num_blocks in range(len(blocks), 0, -1):
            if all(pool.holds(blocks[num_blocks - 1]) for pool in pools):
                return num_blocks
        return 0

    def begin(self, chain: BlockChain) -> None:
        """Pin what a sequence starts from: the snapshots behind its matched blocks."""
        if chain.blocks:
            block = chain.blocks[-1]
            slots = tuple(pool.pin(block) for pool in self.pools)
            self._restores[chain] = _Restore(block, slots)

    def sources(self, chain: BlockChain) -> tuple[int, ...]:
        """Slots by group to copy a sequence's state from; empty when it starts from nothing."""
        restore = self._restores.get(chain)
        return restore.slots if restore is not None else ()

    def restored(self, chain: BlockChain) -> None:
        """Let go of the slots that a sequence started from."""
        restore = self._restores.pop(chain, None)
        if restore is not None:
            for pool in self.pools:
                pool.unpin(restore.block)

    def take(self, chain: BlockChain, num_blocks: int) -> tuple[int, ...]:
        """Slots by group for the state behind a sequence's first blocks; empty without room."""
        slots: list[int] = []
        for pool in self.pools:
            slot = pool.take()
            if slot is None:
                self._give_back(slots)
                return ()
            slots.append(slot)
        self._taken.setdefault(chain, []).append(_Taken(num_blocks, tuple(slots)))
        return tuple(slots)

    def settle(self, chain: BlockChain, num_completed_blocks: int) -> None:
        """Attach what completed steps have written to the blocks that were published for it."""
        taken = self._taken.get(chain)
        if taken is None:
            return
        while taken and taken[0].num_blocks <= num_completed_blocks:
            num_blocks, slots = taken.pop(0)
            if num_blocks > len(chain.blocks):
                # A foreign block has this one's hash, so nobody will find it.
                self._give_back(slots)
                continue
            for pool, slot in zip(self.pools, slots, strict=True):
                pool.attach(slot, chain.blocks[num_blocks - 1])
        if not taken:
            del self._taken[chain]

    def leave(self, chain: BlockChain) -> None:
        """Take everything from a sequence that lets go of its pages."""
        self.restored(chain)
        for taken in self._taken.pop(chain, ()):
            self._give_back(taken.slots)

    def forget(self, block: Block) -> None:
        """Drop the snapshots of a block that cannot be matched any more."""
        for pool in self.pools:
            pool.forget(block)

    def _give_back(self, slots: Sequence[int]) -> None:
        for pool, slot in zip(self.pools, slots, strict=False):
            pool.give_back(slot)
