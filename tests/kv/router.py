"""An index of prefixes built from events alone, as a prefix-aware router builds its own."""

from __future__ import annotations

from pegainfer_core.kv import ClearedBlocks, KvEvent, RemovedBlocks, StoredBlocks


class Router:
    """Believes every event, and nothing else.

    Attributes:
        tokens: Packed tokens by hash of each block that can be matched.
    """

    def __init__(self) -> None:
        self.tokens: dict[bytes, bytes] = {}

    def take(self, events: list[KvEvent]) -> None:
        """Follow a batch; what it says must make sense after what was said before."""
        for event in events:
            match event:
                case StoredBlocks(hashes, parent, token_bytes):
                    assert parent is None or parent in self.tokens, "an unknown parent"
                    for block_hash, content in zip(hashes, token_bytes, strict=True):
                        assert block_hash not in self.tokens, "stored twice"
                        self.tokens[block_hash] = content
                case RemovedBlocks(hashes):
                    for block_hash in hashes:
                        del self.tokens[block_hash]
                case ClearedBlocks():
                    self.tokens.clear()
