"""One sequence's blocks: their hashes, and which of them are published.

Lives as long as its request: a preempted sequence comes back with its hashes at hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.kv.hashing import pack_tokens
from pegainfer_core.kv.pool import PADDING_PAGE

if TYPE_CHECKING:
    from pegainfer_core.kv.hashing import BlockHasher, PrefixIdentity

_TOKEN_BYTES = 4


class Block:
    """Published content of one full page, a node of the tree of all known prefixes.

    Attributes:
        block_hash: Its content hash.
        parent: The block before it, or the identity for a first block.
        token_bytes: Its packed tokens.
        page_id: The page that holds it, for whoever matches it; the padding page once it was
            given up.
        twins: Further pages that hold it, because equal requests computed it side by side.
    """

    # There is one for every cached page, for hours: what it takes is counted in tens of MB.
    __slots__ = ("block_hash", "page_id", "parent", "token_bytes", "twins")

    def __init__(
        self, block_hash: bytes, parent: Block | PrefixIdentity, token_bytes: bytes, page_id: int
    ) -> None:
        self.block_hash = block_hash
        self.parent = parent
        self.token_bytes = token_bytes
        self.page_id = page_id
        self.twins: tuple[int, ...] = ()

    @property
    def page_ids(self) -> tuple[int, ...]:
        """All pages that hold it, the one to match first."""
        return (self.page_id, *self.twins) if self.page_id != PADDING_PAGE else ()

    def strike(self, page_id: int) -> None:
        """One of its pages is given up; the oldest of the others takes its place."""
        if not self.twins:
            self.page_id = PADDING_PAGE
            return
        self.page_id, *twins = [other for other in self.page_ids if other != page_id]
        self.twins = tuple(twins)

    def holds(self, parent: Block | PrefixIdentity, token_bytes: bytes) -> bool:
        """Whether this is the given content, whatever its hash says.

        Parents compare by object, and each was compared in its turn, so equality covers the whole
        prefix.
        """
        return self.token_bytes == token_bytes and self.parent == parent


class BlockChain:
    """Hashes of a sequence's full blocks, extended as it grows and never computed twice.

    Attributes:
        identity: What must be equal for blocks to be shared.
        hashes: Of the first blocks, as far as they were needed.
        token_bytes: Packed tokens of the same blocks.
        blocks: The sequence's leading blocks that are published, its pages among their copies.
        closed: A foreign block has the hash of this sequence's next one; nothing after it can be
            published.
    """

    __slots__ = (
        "_block_tokens",
        "_hasher",
        "blocks",
        "closed",
        "hashes",
        "identity",
        "token_bytes",
    )

    def __init__(self, identity: PrefixIdentity, hasher: BlockHasher, block_tokens: int) -> None:
        self.identity = identity
        self.hashes: list[bytes] = []
        self.token_bytes: list[bytes] = []
        self.blocks: list[Block] = []
        self.closed = False
        self._hasher = hasher
        self._block_tokens = block_tokens

    @property
    def tip(self) -> Block | PrefixIdentity:
        """Parent of the next block to match or publish."""
        return self.blocks[-1] if self.blocks else self.identity

    def extend(self, token_ids: list[int], num_blocks: int) -> None:
        """Hash the sequence's first `num_blocks` blocks, as far as that was not done."""
        done = len(self.hashes)
        if num_blocks <= done:
            return
        size = self._block_tokens
        packed = pack_tokens(token_ids[done * size : num_blocks * size])
        stride = size * _TOKEN_BYTES
        fresh = [packed[start : start + stride] for start in range(0, len(packed), stride)]
        parent = self.hashes[-1] if self.hashes else self._hasher.root(self.identity)
        self.hashes += self._hasher.extend(parent, fresh)
        self.token_bytes += fresh
