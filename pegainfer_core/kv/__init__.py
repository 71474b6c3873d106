"""KV pages, prefix hashing and the prefix cache. Pure Python: no model, no device."""

from pegainfer_core.kv.cbor_hashing import CborBlockHasher
from pegainfer_core.kv.chain import Block, BlockChain
from pegainfer_core.kv.event_log import (
    ClearedBlocks,
    KvEvent,
    KvEventCarrier,
    KvEventLog,
    RemovedBlocks,
    StoredBlocks,
)
from pegainfer_core.kv.hashing import (
    BlockHasher,
    HashFunction,
    PrefixIdentity,
    pack_tokens,
    try_packing,
)
from pegainfer_core.kv.manager import KvManager
from pegainfer_core.kv.opening import make_hasher, open_kv
from pegainfer_core.kv.paged_sequence import PagedSequence
from pegainfer_core.kv.pool import PADDING_PAGE, PageError, PageKeeper, PagePool
from pegainfer_core.kv.prefix_cache import PrefixCache
from pegainfer_core.kv.snapshot_groups import SnapshotGroups
from pegainfer_core.kv.snapshots import SnapshotPool, SnapshotSpec
from pegainfer_core.kv.tier import KvTier, PageKey, TierPlace, TierRecord, TierStats

__all__ = [
    "PADDING_PAGE",
    "Block",
    "BlockChain",
    "BlockHasher",
    "CborBlockHasher",
    "ClearedBlocks",
    "HashFunction",
    "KvEvent",
    "KvEventCarrier",
    "KvEventLog",
    "KvManager",
    "KvTier",
    "PageError",
    "PageKeeper",
    "PageKey",
    "PagePool",
    "PagedSequence",
    "PrefixCache",
    "PrefixIdentity",
    "RemovedBlocks",
    "SnapshotGroups",
    "SnapshotPool",
    "SnapshotSpec",
    "StoredBlocks",
    "TierPlace",
    "TierRecord",
    "TierStats",
    "make_hasher",
    "open_kv",
    "pack_tokens",
    "try_packing",
]
