"""Ways through the tree of blocks that ended requests took, for the next turn to run along.

Looking up 8,192 blocks one by one takes milliseconds, comparing their tokens at once microseconds.
"""

from __future__ import annotations

from collections import OrderedDict
from operator import attrgetter
from typing import TYPE_CHECKING

from pegainfer_core.kv.pool import PADDING_PAGE

if TYPE_CHECKING:
    from pegainfer_core.kv.chain import Block, BlockChain

_PAGE_ID = attrgetter("page_id")

STRIDE_BLOCKS = 64
"""What is shorter than this is not worth it."""


class _Trail:
    """A way as it was: some of its last blocks may be gone since."""

    __slots__ = ("blocks", "hashes", "packed", "token_bytes")

    def __init__(self, chain: BlockChain) -> None:
        size = len(chain.blocks)
        self.blocks = chain.blocks[:]
        self.hashes = chain.hashes[:size]
        self.token_bytes = chain.token_bytes[:size]
        self.packed = b"".join(self.token_bytes)


class Trails:
    """The most recent ways, each found from every `stride_blocks`th of its blocks.

    Args:
        max_blocks: Blocks of all ways together; each takes about 100 bytes beside the tree's own.

    Attributes:
        stride_blocks: Blocks between the places where a way can be joined.
    """

    def __init__(self, max_blocks: int) -> None:
        self.stride_blocks = STRIDE_BLOCKS
        self._max_blocks = max_blocks
        self._num_blocks = 0
        self._from: dict[Block, _Trail] = {}
        self._trails: OrderedDict[_Trail, None] = OrderedDict()

    def record(self, chain: BlockChain) -> None:
        """Remember the published blocks of a sequence that lets go of its pages."""
        num_blocks = len(chain.blocks)
        if not self.stride_blocks < num_blocks <= self._max_blocks:
            return
        trail = _Trail(chain)
        for block in self._joints(trail):
            self._from[block] = trail
        self._trails[trail] = None
        self._num_blocks += num_blocks
        while self._num_blocks > self._max_blocks:
            self._drop(next(iter(self._trails)))

    def follow(self, chain: BlockChain, token_ids: list[int], max_blocks: int) -> bool:
        """Lengthen a match along a trail that passes its last block, as far as tokens agree.

        The chain must have hashed no further than it matched. A trail's blocks have the trail's
        blocks as parents, so equal tokens behind a common block mean equal content.

        Returns:
            Whether the match got longer.
        """
        trail = self._from.get(chain.blocks[-1])
        if trail is None:
            return False
        start = len(chain.blocks)
        stop = start + num_alive(trail.blocks[start:max_blocks])
        stop = self._agreement(trail, chain, token_ids, start, stop)
        chain.blocks += trail.blocks[start:stop]
        chain.hashes += trail.hashes[start:stop]
        chain.token_bytes += trail.token_bytes[start:stop]
        if trail in self._trails:
            self._trails.move_to_end(trail)
        return stop > start

    def forget(self, block: Block) -> None:
        """A block cannot be matched any more, so no trail is joined there."""
        self._from.pop(block, None)

    def _agreement(
        self, trail: _Trail, chain: BlockChain, token_ids: list[int], start: int, stop: int
    ) -> int:
        if stop <= start:
            return start
        stride = len(trail.token_bytes[start])
        ours = chain.packed(token_ids, start, stop)
        theirs = trail.packed[start * stride : stop * stride]
        if ours == theirs:
            return stop
        low, high = 0, stop - start - 1
        while low < high:
            middle = (low + high + 1) // 2
            part = slice(low * stride, middle * stride)
            if ours[part] == theirs[part]:
                low = middle
            else:
                high = middle - 1
        return start + low

    def _drop(self, trail: _Trail) -> None:
        del self._trails[trail]
        self._num_blocks -= len(trail.blocks)
        for block in self._joints(trail):
            if self._from.get(block) is trail:
                del self._from[block]

    def _joints(self, trail: _Trail) -> list[Block]:
        return trail.blocks[self.stride_blocks - 1 :: self.stride_blocks]


def num_alive(blocks: list[Block]) -> int:
    """Leading blocks that still have a page."""
    page_ids = list(map(_PAGE_ID, blocks))
    return page_ids.index(PADDING_PAGE) if PADDING_PAGE in page_ids else len(page_ids)
