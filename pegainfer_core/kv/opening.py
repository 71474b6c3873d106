"""Makes the KV manager that the core's options ask for, the same way for every family."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import xxhash

from pegainfer_core.kv.cbor_hashing import CborBlockHasher
from pegainfer_core.kv.event_feed import KvEventFeed
from pegainfer_core.kv.event_log import KvEventLog
from pegainfer_core.kv.hashing import BlockHasher
from pegainfer_core.kv.jsonl_sink import JsonlSink
from pegainfer_core.kv.manager import KvManager
from pegainfer_core.weights import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.contract import CoreOptions
    from pegainfer_core.kv.event_feed import KvEventSink
    from pegainfer_core.kv.snapshots import SnapshotSpec

_ZMQ_SCHEMES = ("tcp://", "ipc://")
_JSONL = "jsonl:"


def open_kv(
    num_pages: int,
    page_tokens: int,
    options: CoreOptions,
    *,
    model_identity: str = "",
    snapshots: Sequence[SnapshotSpec] = (),
) -> KvManager:
    """A manager with every page free, with the hash scheme and the event feed of the options.

    Close it with the engine.

    Args:
        num_pages: Pages of the memory behind the ids, the padding page 0 included.
        page_tokens: Tokens in one page.
        options: What the engine was started with.
        model_identity: Content of the model.
        snapshots: Groups of state that cannot be cut into pages.

    Raises:
        ConfigError: `--kv-events` and what belongs to it cannot be used.
    """
    return KvManager(
        num_pages,
        page_tokens,
        prefix_cache=options.prefix_cache,
        model_identity=model_identity,
        hasher=make_hasher(options),
        snapshots=snapshots,
        events=_open_events(options),
    )


def make_hasher(options: CoreOptions) -> BlockHasher:
    """The hash scheme of `--kv-hash`."""
    match options.kv_hash:
        case "native":
            return BlockHasher()
        case "xxhash_cbor":
            return CborBlockHasher(xxhash.xxh3_128_digest, seed=options.kv_hash_seed)
        case "sha256_cbor":
            return CborBlockHasher(_sha256, seed=options.kv_hash_seed)


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _open_events(options: CoreOptions) -> KvEventLog | None:
    if options.kv_events is None:
        if options.kv_events_replay is not None:
            raise ConfigError("--kv-events-replay needs --kv-events")
        return None
    if not options.prefix_cache:
        raise ConfigError("--kv-events tells of the prefix cache: leave out --no-prefix-cache")
    return KvEventLog(KvEventFeed(_open_sink(options.kv_events, options)))


def _open_sink(place: str, options: CoreOptions) -> KvEventSink:
    if place.startswith(_JSONL):
        if options.kv_events_replay is not None:
            raise ConfigError("--kv-events-replay needs --kv-events over ZeroMQ, not jsonl:")
        return JsonlSink(place.removeprefix(_JSONL))
    if not place.startswith(_ZMQ_SCHEMES):
        raise ConfigError(
            f"--kv-events {place} is none of tcp://HOST:PORT, ipc://PATH (ZeroMQ) and jsonl:PATH"
        )
    try:
        from pegainfer_core.kv.zmq_sink import ZmqSink
    except ImportError as error:
        raise ConfigError(
            f"--kv-events {place} needs pyzmq: pip install 'pegainfer[kv-events]', "
            "or write to a file with --kv-events jsonl:PATH"
        ) from error
    return ZmqSink(
        place,
        replay=options.kv_events_replay,
        topic=options.kv_events_topic,
        encoding=options.kv_events_encoding,
    )
