"""What a sequence's pages are called outside the device. Knows no tiers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pegainfer_core.kv import PageKey
from pegainfer_core.offload.digests import extended_digests, root_digest

if TYPE_CHECKING:
    from pegainfer_core.kv import BlockChain


class PageKeys:
    """Keys of one sequence's pages, as far as its chain knows their tokens; none is made twice.

    Used by the engine's thread, which looks for prefixes, and the offload thread, which saves.

    Args:
        identity: Digest of all that shapes pages beside their tokens.
        chain: The sequence's.
    """

    __slots__ = ("_chain", "_digests", "_identity", "_lock")

    def __init__(self, identity: str, chain: BlockChain) -> None:
        self._identity = identity
        self._chain = chain
        self._digests: list[bytes] = []
        self._lock = threading.Lock()

    def of(self, first: int, end: int) -> tuple[list[PageKey], PageKey | None]:
        """Keys of some pages, and of the page before them; the chain must reach to `end`."""
        digests = self._digests
        if len(digests) < end:
            with self._lock:
                self._extend(end)
        keys = [PageKey(digest) for digest in digests[first:end]]
        return keys, PageKey(digests[first - 1]) if first else None

    def _extend(self, end: int) -> None:
        """Blocks that others have published know theirs: the next turn makes few."""
        digests, chain = self._digests, self._chain
        known = [block.digest for block in chain.blocks[len(digests) : end]]
        digests += [digest for digest in known[: _first_none(known)] if digest is not None]
        done = len(digests)
        parent = digests[-1] if done else root_digest(self._identity, chain.identity)
        fresh = extended_digests(parent, chain.token_bytes[done:end])
        for block, digest in zip(chain.blocks[done:end], fresh, strict=False):
            block.digest = digest
        digests += fresh


def _first_none(known: list[bytes | None]) -> int:
    return known.index(None) if None in known else len(known)
