"""What the prefix cache gained and lost since the last step, noted on the engine thread.

Knows neither formats nor transports: whoever carries events on turns them into those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from pegainfer_core.kv.chain import Block, BlockChain


class StoredBlocks(NamedTuple):
    """Consecutive blocks of one sequence can be matched from now on.

    Attributes:
        hashes: Of the blocks.
        parent: Hash of the block before them, None when they are the first.
        token_bytes: Packed tokens of each.
        adapter: Content of the sequence's adapter, empty without one.
        extra_keys: What the first block's hash covers by itself, then what the others' do.
    """

    hashes: list[bytes]
    parent: bytes | None
    token_bytes: list[bytes]
    adapter: str
    extra_keys: tuple[tuple[str, ...] | None, tuple[str, ...] | None]


class RemovedBlocks(NamedTuple):
    """Blocks cannot be matched any more."""

    hashes: list[bytes]


class ClearedBlocks(NamedTuple):
    """Nothing can be matched any more."""


KvEvent: TypeAlias = StoredBlocks | RemovedBlocks | ClearedBlocks


class KvEventCarrier(Protocol):
    """Takes events off the engine thread; must not block it.

    Attributes:
        num_dropped: Batches that were not delivered.
    """

    num_dropped: int

    def carry(self, events: list[KvEvent]) -> None:
        """Take a step's events, in order."""
        ...

    def close(self) -> None:
        """Deliver what was taken and end."""
        ...


class KvEventLog:
    """Collects events until a step is over.

    Args:
        carrier: Who takes them on.
    """

    def __init__(self, carrier: KvEventCarrier) -> None:
        self._carrier = carrier
        self._events: list[KvEvent] = [ClearedBlocks()]  # Whatever was known of this engine.
        self.flush()

    @property
    def num_dropped(self) -> int:
        """Steps whose events were not delivered."""
        return self._carrier.num_dropped

    def stored(self, chain: BlockChain, first: int, stop: int) -> None:
        """Note that a chain's blocks [first, stop) were published."""
        keys = (chain.extra_keys(first == 0), chain.extra_keys(False))
        self._events.append(
            StoredBlocks(
                chain.hashes[first:stop],
                chain.hashes[first - 1] if first else None,
                chain.token_bytes[first:stop],
                chain.identity.adapter,
                keys,
            )
        )

    def removed(self, block: Block) -> None:
        """Note that a block was given up."""
        last = self._events[-1] if self._events else None
        if isinstance(last, RemovedBlocks):
            last.hashes.append(block.block_hash)
        else:
            self._events.append(RemovedBlocks([block.block_hash]))

    def cleared(self) -> None:
        """Note that nothing is left; what was noted before is void."""
        self._events = [ClearedBlocks()]

    def flush(self) -> None:
        """Hand on what was noted."""
        if self._events:
            events, self._events = self._events, []
            self._carrier.carry(events)

    def close(self) -> None:
        """Hand on what was noted, and end the carrier."""
        self.flush()
        self._carrier.close()
