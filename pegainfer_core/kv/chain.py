"""One sequence's blocks: their hashes, and which of them are published.

Lives as long as its request: a preempted sequence comes back with its hashes at hand.
"""

from __future__ import annotations

import sys
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING

from pegainfer_core.kv.hashing import pack_tokens
from pegainfer_core.kv.pool import PADDING_PAGE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.kv.hashing import BlockHasher, PrefixIdentity

_TOKEN_BYTES = 4
NEVER = sys.maxsize


class Block:
    """Published content of one full page, a node of the tree of all known prefixes.

    Attributes:
        block_hash: Its content hash.
        parent: The block before it, or the identity for a first block.
        token_bytes: Its packed tokens.
        page_id: The page that holds it, for whoever matches it; the padding page once it was
            given up.
        twins: Further pages that hold it, because equal requests computed it side by side.
        digest: What it is called outside the device, once somebody asked.
    """

    # There is one for every cached page, for hours: what it takes is counted in tens of MB.
    __slots__ = ("block_hash", "digest", "page_id", "parent", "token_bytes", "twins")

    def __init__(
        self, block_hash: bytes, parent: Block | PrefixIdentity, token_bytes: bytes, page_id: int
    ) -> None:
        self.block_hash = block_hash
        self.parent = parent
        self.token_bytes = token_bytes
        self.page_id = page_id
        self.twins: tuple[int, ...] = ()
        self.digest: bytes | None = None

    @property
    def page_ids(self) -> tuple[int, ...]:
        """All pages that hold it, the one to match first."""
        return (self.page_id, *self.twins) if self.page_id != PADDING_PAGE else ()

    @property
    def orphaned(self) -> bool:
        """Whether its parent has no page any more."""
        parent = self.parent
        return isinstance(parent, Block) and parent.page_id == PADDING_PAGE

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


@cache
def _packer(num_tokens: int) -> Callable[..., bytes]:
    """What `pack_tokens` does, in less time for a few tokens."""
    return Struct(f"<{num_tokens}I").pack


class BlockChain:
    """Hashes of a sequence's full blocks, extended as it grows and never computed twice.

    Attributes:
        identity: What must be equal for blocks to be shared.
        block_tokens: Tokens in one block.
        hashes: Of the first blocks, as far as they were needed.
        token_bytes: Packed tokens of the same blocks.
        blocks: The sequence's leading blocks that are published, its pages among their copies.
        due_tokens: Completed tokens with which the next block can be published.
        num_known: Leading blocks that were published when it was last matched, usable or not.
    """

    __slots__ = (
        "_hasher",
        "_pack",
        "_packed",
        "block_tokens",
        "blocks",
        "due_tokens",
        "hashes",
        "identity",
        "num_known",
        "token_bytes",
    )

    def __init__(
        self,
        identity: PrefixIdentity,
        hasher: BlockHasher,
        block_tokens: int,
        packed: bytes = b"",
    ) -> None:
        """Start without a hash.

        Args:
            identity: Of the sequence.
            hasher: The hash scheme.
            block_tokens: Tokens in one block.
            packed: The sequence's first tokens, as far as they were packed already.
        """
        self.identity = identity
        self.block_tokens = block_tokens
        self.hashes: list[bytes] = []
        self.token_bytes: list[bytes] = []
        self.blocks: list[Block] = []
        self.due_tokens = block_tokens
        self.num_known = 0
        self._hasher = hasher
        self._packed = packed
        self._pack = _packer(block_tokens)

    @property
    def tip(self) -> Block | PrefixIdentity:
        """Parent of the next block to match or publish."""
        return self.blocks[-1] if self.blocks else self.identity

    @property
    def closed(self) -> bool:
        """Whether nothing more can be published: a foreign block has the next one's hash."""
        return self.due_tokens == NEVER

    def close(self) -> None:
        """Publish nothing more until the sequence is matched again."""
        self.due_tokens = NEVER

    def settle(self) -> None:
        """Take note of changed `blocks`."""
        self.due_tokens = (len(self.blocks) + 1) * self.block_tokens

    def extend(self, token_ids: list[int], num_blocks: int) -> None:
        """Hash the sequence's first `num_blocks` blocks, as far as that was not done."""
        hashes = self.hashes
        done = len(hashes)
        if num_blocks <= done:
            return
        size = self.block_tokens
        parent = hashes[-1] if done else None
        packed = self.packed(token_ids, done, num_blocks)
        stride = size * _TOKEN_BYTES
        fresh = [packed[start : start + stride] for start in range(0, len(packed), stride)]
        hashes += self._hasher.extend(self.identity, parent, fresh)
        self.token_bytes += fresh

    def next_block(self, token_ids: list[int], page_id: int) -> Block:
        """The block behind those that are hashed, all of which must be published."""
        blocks, hashes, size = self.blocks, self.hashes, self.block_tokens
        start = len(hashes) * size
        token_bytes = self._pack(*token_ids[start : start + size])
        identity = self.identity
        if blocks:
            parent: Block | PrefixIdentity = blocks[-1]
            block_hash = self._hasher.next(identity, hashes[-1], token_bytes)
        else:
            parent = identity
            block_hash = self._hasher.next(identity, None, token_bytes)
        hashes.append(block_hash)
        self.token_bytes.append(token_bytes)
        return Block(block_hash, parent, token_bytes, page_id)

    def packed(self, token_ids: list[int], first: int, stop: int) -> bytes:
        """Packed tokens of the sequence's blocks [first, stop)."""
        size = self.block_tokens
        stride = size * _TOKEN_BYTES
        if stop * stride <= len(self._packed):
            return self._packed[first * stride : stop * stride]
        return pack_tokens(token_ids[first * size : stop * size])

    def extra_keys(self, is_first: bool) -> tuple[str, ...] | None:
        """What the hash of one of its blocks covers by itself, beside tokens and parent."""
        return self._hasher.extra_keys(self.identity, is_first)
