"""How KV events look outside: vLLM's schema in MessagePack, and the same as lines of JSON.

A batch is an array [seconds since 1970, [event, ...], rank]. Events are maps with their kind under
`type`, as vLLM sends them since its pull request 42892, without the fields that are at their
defaults; or arrays of all fields with the kind first, as it did before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from pegainfer_core.kv.event_log import RemovedBlocks, StoredBlocks
from pegainfer_core.kv.hashing import unpack_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.kv.event_log import KvEvent

MEDIUM = "GPU"
"""vLLM's word for the memory that the model computes in; it is used on NumPy too."""

EventEncoding: TypeAlias = Literal["map", "array"]
WireHash: TypeAlias = int | str
"""The last 64 bits as a number in MessagePack, all bits as hexadecimal digits in JSON."""


class BlockStored(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Consecutive blocks of a sequence can be matched from now on."""

    block_hashes: list[WireHash]
    parent_block_hash: WireHash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[str, ...] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None


class BlockRemoved(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Blocks cannot be matched any more."""

    block_hashes: list[WireHash]
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, frozen=True, tag=True):
    """Nothing can be matched any more; also said first of all, by an engine that just started."""


WireEvent: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared


class KvEventBatch(msgspec.Struct, frozen=True, array_like=True):
    """What happened since the batch before it, in order."""

    ts: float
    events: list[WireEvent]
    data_parallel_rank: int | None = 0


class KvEventLine(msgspec.Struct, frozen=True):
    """A batch as a line of JSON."""

    seq: int
    ts: float
    events: list[WireEvent]


class EventEncoder:
    """Turns noted events into messages.

    Args:
        encoding: Of the events in MessagePack.
    """

    def __init__(self, encoding: EventEncoding = "map") -> None:
        self._as_array = encoding == "array"
        self._msgpack = msgspec.msgpack.Encoder()
        self._json = msgspec.json.Encoder()

    def message(self, ts: float, events: list[KvEvent]) -> bytes:
        """A batch in MessagePack."""
        wire = [_wire(event, _number) for event in events]
        if self._as_array:
            return self._msgpack.encode((ts, [_array(event) for event in wire], 0))
        return self._msgpack.encode(KvEventBatch(ts, wire))

    def line(self, seq: int, ts: float, events: list[KvEvent]) -> bytes:
        """A batch as a line of JSON, its end included."""
        wire = [_wire(event, bytes.hex) for event in events]
        return self._json.encode(KvEventLine(seq, ts, wire)) + b"\n"


def _wire(event: KvEvent, spell: Callable[[bytes], WireHash]) -> WireEvent:
    if isinstance(event, StoredBlocks):
        tokens = unpack_tokens(b"".join(event.token_bytes))
        first_keys, later_keys = event.extra_keys
        keys = [first_keys, *[later_keys] * (len(event.hashes) - 1)]
        return BlockStored(
            block_hashes=[spell(block_hash) for block_hash in event.hashes],
            parent_block_hash=None if event.parent is None else spell(event.parent),
            token_ids=tokens,
            block_size=len(tokens) // len(event.hashes),
            lora_id=None,
            medium=MEDIUM,
            lora_name=event.adapter or None,
            extra_keys=keys if any(keys) else None,
        )
    if isinstance(event, RemovedBlocks):
        return BlockRemoved([spell(block_hash) for block_hash in event.hashes], MEDIUM)
    return AllBlocksCleared()


def _number(block_hash: bytes) -> int:
    return int.from_bytes(block_hash[-8:], "big")


def _array(event: WireEvent) -> tuple[object, ...]:
    return (type(event).__name__, *msgspec.structs.astuple(event))
