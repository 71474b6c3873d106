"""What a sequence's pages are called outside the device. Knows no tiers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.kv import PageKey
from pegainfer_core.offload import extended_digests, root_digest

if TYPE_CHECKING:
    from pegainfer_core.engine.sequence import Sequence
    from pegainfer_core.kv import BlockChain


class PageKeys:
    """Keys of one model's pages; digests are kept with their sequence and never computed twice.

    Args:
        identity: Digest of all that shapes the pages beside their tokens.
    """

    def __init__(self, identity: str) -> None:
        self._identity = identity

    def of(
        self, sequence: Sequence, chain: BlockChain, first: int, end: int
    ) -> tuple[list[PageKey], PageKey | None]:
        """Keys of a sequence's pages from `first` on, and of the page before them."""
        digests = sequence.digests
        done = len(digests)
        if done < end:
            chain.extend(sequence.token_ids, end)
            parent = digests[-1] if done else root_digest(self._identity, chain.identity)
            digests += extended_digests(parent, chain.token_bytes[done:end])
        keys = [PageKey(digest) for digest in digests[first:end]]
        return keys, PageKey(digests[first - 1]) if first else None
