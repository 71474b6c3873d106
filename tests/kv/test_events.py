"""KV events: whoever replays them knows what can be matched, and nothing waits for them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegainfer_core.contract import CoreOptions
from pegainfer_core.kv import (
    CborBlockHasher,
    ClearedBlocks,
    KvEvent,
    KvEventLog,
    KvManager,
    RemovedBlocks,
    StoredBlocks,
    open_kv,
    pack_tokens,
)
from pegainfer_core.kv.event_feed import KvEventFeed
from pegainfer_core.kv.event_wire import EventEncoder, KvEventBatch
from pegainfer_core.kv.jsonl_sink import JsonlSink
from pegainfer_core.weights import ConfigError
from tests.kv.router import Router
from tests.kv.test_manager import B, admit, compute, serve

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Carrier:
    """Keeps what it is given."""

    batches: list[list[KvEvent]] = field(default_factory=list)
    closed: bool = False
    num_dropped: int = 0

    def carry(self, events: list[KvEvent]) -> None:
        self.batches.append(events)

    def close(self) -> None:
        self.closed = True


def manager(carrier: Carrier, num_usable_pages: int = 20) -> KvManager:
    return KvManager(num_usable_pages + 1, B, events=KvEventLog(carrier))


def test_the_first_word_is_that_nothing_is_cached() -> None:
    carrier = Carrier()
    manager(carrier)
    assert carrier.batches == [[ClearedBlocks()]]


def test_a_step_is_a_batch() -> None:
    carrier = Carrier()
    kv = manager(carrier)
    seq = admit(kv, list(range(3 * B + 1)))
    compute(kv, seq, 2 * B)
    compute(kv, seq, 2 * B + 1)  # fills no page: no batch
    compute(kv, seq, 3 * B)
    kv.release(seq)
    assert seq.chain is not None
    hashes = seq.chain.hashes
    packed = [pack_tokens(list(range(start, start + B))) for start in (0, B, 2 * B)]
    assert carrier.batches[1:] == [
        [StoredBlocks(hashes[:2], None, packed[:2], "", (None, None))],
        [StoredBlocks(hashes[2:], hashes[1], packed[2:], "", (None, None))],
    ]


def test_copies_are_no_news() -> None:
    carrier = Carrier()
    kv = manager(carrier)
    twins = [admit(kv, list(range(2 * B))) for _ in range(2)]
    for twin in twins:
        compute(kv, twin)
    for twin in twins:
        kv.release(twin)
    assert len(carrier.batches) == 2


def test_evictions_are_told_with_the_step_that_needed_them() -> None:
    carrier = Carrier()
    kv = manager(carrier, 4)
    serve(kv, list(range(3 * B)))
    serve(kv, list(range(50, 50 + 3 * B)))
    [removed, stored] = carrier.batches[-1]
    [first] = carrier.batches[1]
    assert isinstance(first, StoredBlocks) and isinstance(stored, StoredBlocks)
    assert removed == RemovedBlocks([first.hashes[2], first.hashes[1]])


def test_a_reset_tells_of_all_or_of_each() -> None:
    carrier = Carrier()
    kv = manager(carrier)
    serve(kv, list(range(2 * B)))
    seq = admit(kv, list(range(50, 50 + B)))
    compute(kv, seq)
    kv.reset_prefix_cache()
    assert [type(event) for event in carrier.batches[-1]] == [RemovedBlocks]
    kv.release(seq)
    kv.reset_prefix_cache()
    assert carrier.batches[-1] == [ClearedBlocks()]
    kv.close()
    assert carrier.closed


prompts = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 5), st.booleans()), min_size=1, max_size=30
)


@given(prompts)
def test_a_router_knows_exactly_what_can_be_matched(history: list[tuple[int, int, bool]]) -> None:
    carrier, router = Carrier(), Router()
    kv = manager(carrier, 6)
    for variant, num_blocks, reset in history:
        # Prompts of one variant share a block with the others of it.
        serve(kv, [variant] * B + list(range(10 * num_blocks, 10 * num_blocks + B * num_blocks)))
        if reset:
            kv.reset_prefix_cache()
        while carrier.batches:
            router.take(carrier.batches.pop(0))
        assert kv._cache is not None
        index = kv._cache._by_hash
        assert router.tokens == {key: block.token_bytes for key, block in index.items()}


def stored() -> list[KvEvent]:
    carrier = Carrier()
    kv = KvManager(20, B, hasher=CborBlockHasher(), events=KvEventLog(carrier))
    serve(kv, [1, 2, 3, 4, 5, 6, 7, 8], adapter="lora", cache_salt="salt")
    return carrier.batches[1]


HASHES = [
    int.from_bytes(block_hash[-8:], "big")
    for event in stored()
    if isinstance(event, StoredBlocks)
    for block_hash in event.hashes
]
STORED = {
    "type": "BlockStored",
    "block_hashes": HASHES,
    "parent_block_hash": None,
    "token_ids": [1, 2, 3, 4, 5, 6, 7, 8],
    "block_size": 4,
    "lora_id": None,
    "medium": "GPU",
    "lora_name": "lora",
    "extra_keys": [["lora", "salt"], ["lora"]],
}


def test_events_are_maps_in_an_array() -> None:
    events = [*stored(), RemovedBlocks([b"\1" * 16]), ClearedBlocks()]
    message = EventEncoder().message(1.5, events)
    removed = {"type": "BlockRemoved", "block_hashes": [0x0101010101010101], "medium": "GPU"}
    expected = [1.5, [STORED, removed, {"type": "AllBlocksCleared"}], 0]
    assert msgspec.msgpack.decode(message) == expected
    batch = msgspec.msgpack.decode(message, type=KvEventBatch)
    assert batch.data_parallel_rank == 0 and len(batch.events) == 3


def test_events_are_arrays_for_older_readers() -> None:
    events = [*stored(), RemovedBlocks([b"\1" * 16]), ClearedBlocks()]
    message = EventEncoder("array").message(1.5, events)
    removed = ["BlockRemoved", [0x0101010101010101], "GPU", None]
    expected = [1.5, [[*STORED.values(), None, None, None], removed, ["AllBlocksCleared"]], 0]
    assert msgspec.msgpack.decode(message) == expected


def test_plain_blocks_say_nothing_of_extra_keys() -> None:
    carrier = Carrier()
    serve(manager(carrier), list(range(B)))
    [_, [event], _] = msgspec.msgpack.decode(EventEncoder().message(0.0, carrier.batches[1]))
    assert "extra_keys" not in event and event["lora_name"] is None


class SlowSink:
    """Waits for leave before each batch."""

    def __init__(self) -> None:
        self.leave = threading.Event()
        self.seqs: list[int] = []
        self.closed = False

    def send(self, seq: int, ts: float, events: list[KvEvent]) -> None:
        assert self.leave.wait(10)
        if seq == 1:
            raise OSError("no space")
        self.seqs.append(seq)

    def close(self) -> None:
        self.closed = True


def test_a_stuck_sink_costs_events_and_never_a_step() -> None:
    sink = SlowSink()
    feed = KvEventFeed(sink, max_queued=3)
    started = time.monotonic()
    feed.carry([ClearedBlocks()])
    while feed._queue.qsize():  # until the thread has it in hand
        time.sleep(0.001)
    for _ in range(8):
        feed.carry([ClearedBlocks()])
    assert time.monotonic() - started < 9  # the sink holds each batch for ten
    sink.leave.set()
    feed.close()
    # 1 failed, 4 to 8 found the queue full: their numbers are missing.
    assert (sink.seqs, feed.num_dropped, sink.closed) == ([0, 2, 3], 6, True)


def test_lost_events_are_counted() -> None:
    carrier = Carrier(num_dropped=3)
    assert manager(carrier).num_dropped_event_batches == 3
    assert KvManager(20, B).num_dropped_event_batches == 0


def test_lines_of_json(tmp_path: Path) -> None:
    path = f"{tmp_path}/events.jsonl"
    for _ in range(2):
        kv = open_kv(20, B, CoreOptions(kv_events=f"jsonl:{path}"))
        seq = admit(kv, list(range(2 * B)))
        compute(kv, seq)
        kv.close()
    with open(path, "rb") as file:
        lines = [msgspec.json.decode(line) for line in file]
    assert seq.chain is not None
    assert [line["seq"] for line in lines] == [0, 1, 0, 1]
    assert [event["type"] for line in lines for event in line["events"]] == [
        "AllBlocksCleared",
        "BlockStored",
    ] * 2
    assert lines[1]["events"][0]["block_hashes"] == [key.hex() for key in seq.chain.hashes]


def test_a_line_cut_short_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.jsonl"
    sink = JsonlSink(str(path))
    whole = sink._file

    class FullDisk:
        def write(self, line: bytes) -> int:
            return whole.write(line[:5])

    sink.send(0, 1.0, [ClearedBlocks()])
    monkeypatch.setattr(sink, "_file", FullDisk())
    with pytest.raises(OSError, match="5 of 58 bytes"):
        sink.send(1, 1.0, [ClearedBlocks()])
    monkeypatch.setattr(sink, "_file", whole)
    sink.send(2, 1.0, [ClearedBlocks()])
    sink.close()
    first, torn, last = path.read_bytes().splitlines()
    assert (torn, msgspec.json.decode(first)["seq"], msgspec.json.decode(last)["seq"]) == (
        b'{"seq',
        0,
        2,
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kv_events": "udp://x"}, "udp://x is none of tcp"),
        ({"kv_events": "jsonl:/no/such/folder/x"}, "x cannot be opened: No such file"),
        ({"kv_events": "tcp://*:1", "prefix_cache": False}, "leave out --no-prefix-cache"),
        ({"kv_events_replay": "tcp://*:1"}, "needs --kv-events"),
        ({"kv_events": "jsonl:x", "kv_events_replay": "tcp://*:1"}, "not jsonl"),
        ({"kv_events": "tcp://no-port"}, "tcp://no-port cannot be used"),
        ({"kv_events": "tcp://*:0", "kv_events_replay": "tcp://x"}, "--kv-events-replay tcp://x"),
    ],
)
def test_what_cannot_be_used_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("*", r"\*")):
        open_kv(20, B, CoreOptions(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["native", "xxhash_cbor", "sha256_cbor"])
def test_hash_schemes_by_name(name: str) -> None:
    kv = open_kv(20, B, CoreOptions(kv_hash=name, kv_hash_seed="42"))  # type: ignore[arg-type]
    assert serve(kv, list(range(B + 1))) == 0
    assert serve(kv, list(range(B + 1))) == B
    chain = kv.new_chain()
    assert chain is not None
    chain.extend([1, 2, 3, 4], 1)
    root = "a9d2e63407fce1a26c9dc9d7fa2d7caf"
    assert (chain._hasher.root(chain.identity).hex() == root) == (name == "xxhash_cbor")
    assert len(chain.hashes[0]) == (32 if name == "sha256_cbor" else 16)
