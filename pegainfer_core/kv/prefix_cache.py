"""Finds pages that already hold a sequence's first tokens.

An index from content to page ids; who uses the pages is the pool's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.kv.chain import Block
from pegainfer_core.kv.pool import PADDING_PAGE
from pegainfer_core.kv.trails import Trails, num_alive

if TYPE_CHECKING:
    from pegainfer_core.kv.chain import BlockChain
    from pegainfer_core.kv.event_log import KvEventLog
    from pegainfer_core.kv.snapshot_groups import SnapshotGroups


class PrefixCache:
    """The tree of published blocks; a `PageKeeper`.

    Sequences release pages last to first, and who uses a child's page uses one of its parent's
    too, so a block goes after its children. Where pages alone are held, as copies to other memory
    do, a block may outlive its parent: it cannot be reached then, and gives way to a new one.

    Args:
        num_pages: Page ids are below this.
        snapshots: Further groups of state, attached to the same blocks.
        events: Where to note what can be matched from now on, and what no more.
    """

    def __init__(
        self,
        num_pages: int,
        snapshots: SnapshotGroups,
        events: KvEventLog | None = None,
    ) -> None:
        self._by_hash: dict[bytes, Block] = {}
        self._by_page: list[Block | None] = [None] * num_pages
        self._trails = Trails(num_pages // 2)
        self._snapshots = snapshots
        self._events = events

    def __len__(self) -> int:
        """Blocks that can be matched."""
        return len(self._by_hash)

    def match(self, chain: BlockChain, token_ids: list[int], max_blocks: int) -> None:
        """Set `chain.blocks` to the longest published prefix of at most `max_blocks` blocks.

        A chain that matched before starts from what is left of that. Hashes only as far as the
        match goes (in strides), so a prompt that nobody has seen costs next to nothing here; one
        that goes on from an ended request is compared with that one's tokens at once.
        """
        blocks = chain.blocks
        del blocks[max_blocks:]
        del blocks[num_alive(blocks) :]
        parent, index, stride = chain.tip, len(blocks), self._trails.stride_blocks
        while index < max_blocks:
            if index == len(chain.hashes):
                if blocks and self._trails.follow(chain, token_ids, max_blocks):
                    parent, index = blocks[-1], len(blocks)
                    continue
                goal = index + stride - index % stride
                chain.extend(token_ids, min(goal, max_blocks))
            block = self._by_hash.get(chain.hashes[index])
            if block is None or not block.holds(parent, chain.token_bytes[index]):
                break
            blocks.append(block)
            parent = block
            index += 1
        chain.settle()

    def publish(
        self, chain: BlockChain, token_ids: list[int], page_ids: list[int], num_blocks: int
    ) -> list[int]:
        """Make the first `num_blocks` blocks of a sequence matchable.

        Call only when the step that filled their pages has completed.

        Returns:
            Older copies of the same blocks; those that are idle have become needless.
        """
        older: list[int] = []
        if chain.closed:
            return older
        index = len(chain.blocks)
        if num_blocks == index + 1 == len(chain.hashes) + 1:
            # The usual case, a decoding sequence that filled a page: half of a step's bookkeeping.
            new = chain.next_block(token_ids, page_ids[index])
            if new.block_hash not in self._by_hash:
                self._add(chain, new)
                return older
        chain.extend(token_ids, num_blocks)
        by_hash, by_page, blocks = self._by_hash, self._by_page, chain.blocks
        hashes, token_bytes = chain.hashes, chain.token_bytes
        parent = blocks[-1] if blocks else chain.identity
        first_new = None
        for index in range(len(blocks), num_blocks):
            block_hash, page_id = hashes[index], page_ids[index]
            block = by_hash.get(block_hash)
            if block is not None and block.orphaned:
                older += block.page_ids
                self._give_up(block)
                block = None
            if block is None:
                block = Block(block_hash, parent, token_bytes[index], page_id)
                by_hash[block_hash] = block
                if first_new is None:
                    first_new = index
            elif block.holds(parent, token_bytes[index]):
                # Two requests computed the same tokens at once. Both keep their own page, so that
                # page tables only ever grow. A copy goes when it is idle and another is used.
                older += block.page_ids
                block.twins += (page_id,)
            else:
                chain.close()
                break
            by_page[page_id] = block
            blocks.append(block)
            parent = block
        else:
            chain.due_tokens = (num_blocks + 1) * chain.block_tokens
        if self._events is not None and first_new is not None:
            self._events.stored(chain, first_new, len(blocks))
        return older

    def remember(self, chain: BlockChain) -> None:
        """Note the way of a sequence that lets go of its pages, for its next turn."""
        self._trails.record(chain)

    def sort_out(self, page_ids: list[int]) -> tuple[list[int], list[int]]:
        """Keep those that are the last to hold a published block."""
        by_page, kept, needless = self._by_page, [], []
        for page_id in page_ids:
            block = by_page[page_id]
            if block is None:
                needless.append(page_id)
            elif block.twins:
                self.forget(page_id)
                needless.append(page_id)
            else:
                kept.append(page_id)
        return kept, needless

    def forget(self, page_id: int) -> None:
        """Strike a copy; without copies its block cannot be matched any more."""
        block, self._by_page[page_id] = self._by_page[page_id], None
        if block is not None:
            block.strike(page_id)
            if block.page_id == PADDING_PAGE:
                self._drop(block)

    def _add(self, chain: BlockChain, block: Block) -> None:
        self._by_hash[block.block_hash] = self._by_page[block.page_id] = block
        chain.blocks.append(block)
        chain.due_tokens += chain.block_tokens
        if self._events is not None:
            self._events.stored(chain, len(chain.blocks) - 1, len(chain.blocks))

    def _give_up(self, block: Block) -> None:
        """Drop a block that cannot be reached, though there are copies of it."""
        for page_id in block.page_ids:
            self._by_page[page_id] = None
        block.page_id, block.twins = PADDING_PAGE, ()
        self._drop(block)

    def _drop(self, block: Block) -> None:
        del self._by_hash[block.block_hash]
        self._trails.forget(block)
        self._snapshots.forget(block)
        if self._events is not None:
            self._events.removed(block)
