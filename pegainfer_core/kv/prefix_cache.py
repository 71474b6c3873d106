"""Finds pages that already hold a sequence's first tokens.

An index from content to page ids; who uses the pages is the pool's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.kv.chain import Block
from pegainfer_core.kv.pool import PADDING_PAGE, PageError

if TYPE_CHECKING:
    from pegainfer_core.kv.chain import BlockChain

_MATCH_STRIDE_BLOCKS = 64


class PrefixCache:
    """The tree of published blocks; a `PageKeeper`.

    A block never outlives its parent: pages are released last to first, so a cached page's
    children are always given up before it, and a user of a child uses a copy of the parent too.

    Further groups of state (snapshots at page borders for recurrent layers) attach to the same
    blocks: a hit is then cut to the longest match that every group has.

    Args:
        num_pages: Page ids are below this.
    """

    def __init__(self, num_pages: int) -> None:
        self._by_hash: dict[bytes, Block] = {}
        self._by_page: list[Block | None] = [None] * num_pages

    def __len__(self) -> int:
        """Blocks that can be matched."""
        return len(self._by_hash)

    def match(self, chain: BlockChain, token_ids: list[int], max_blocks: int) -> None:
        """Set `chain.blocks` to the longest published prefix of at most `max_blocks` blocks.

        A chain that matched before starts from what is left of that. Hashes only as far as the
        match goes (in strides), so a prompt that nobody has seen costs next to nothing here.
        """
        blocks = chain.blocks
        chain.closed = False
        del blocks[max_blocks:]
        while blocks and blocks[-1].page_id == PADDING_PAGE:
            blocks.pop()
        parent = chain.tip
        for index in range(len(blocks), max_blocks):
            if index == len(chain.hashes):
                chain.extend(token_ids, min(index + _MATCH_STRIDE_BLOCKS, max_blocks))
            block = self._by_hash.get(chain.hashes[index])
            if block is None or not block.holds(parent, chain.token_bytes[index]):
                break
            blocks.append(block)
            parent = block

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
        chain.extend(token_ids, num_blocks)
        parent = chain.tip
        for index in range(len(chain.blocks), num_blocks):
            block_hash, page_id = chain.hashes[index], page_ids[index]
            block = self._by_hash.get(block_hash)
            if block is None:
                block = Block(block_hash, parent, chain.token_bytes[index], page_id)
                self._by_hash[block_hash] = block
            elif block.holds(parent, chain.token_bytes[index]):
                # Two requests computed the same tokens at once. Both keep their own page, so that
                # page tables only ever grow. A copy goes when it is idle and another is used.
                older += block.page_ids
                block.twins += (page_id,)
            else:
                chain.closed = True
                break
            self._by_page[page_id] = block
            chain.blocks.append(block)
            parent = block
        return older

    def keeps(self, page_id: int) -> bool:
        """Keep a page that is the last to hold a published block."""
        block = self._by_page[page_id]
        if block is None:
            return False
        if not block.twins:
            return True
        self.forget(page_id)
        return False

    def forget(self, page_id: int) -> None:
        """Strike a copy; without copies its block cannot be matched any more."""
        block, self._by_page[page_id] = self._by_page[page_id], None
        if block is None:
            raise PageError(f"page {page_id} holds nothing that could be forgotten")
        block.strike(page_id)
        if block.page_id == PADDING_PAGE:
            del self._by_hash[block.block_hash]
