"""What a KV offload tier is: a store of pages outside the device, asked by content.

Tiers know bytes and keys only: neither tokens, nor devices, nor who asks. Whoever uses one treats
it as a cache that may forget, fail or lie at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future


class PageKey(NamedTuple):
    """Names the content of a page of one group.

    Attributes:
        digest: 32 bytes, SHA-256 of the model's identity, the adapter, the salt and all tokens up
            to the page's end. Equal digests mean equal content, so nothing else is compared.
        group: The KV group whose page it is; 0 for the attention of all layers.
    """

    digest: bytes
    group: int = 0


class TierRecord(NamedTuple):
    """A page's content under its key.

    Attributes:
        key: Names it.
        buffer: C-contiguous bytes, `TierPlace.record_bytes` of the key's group; starts at a
            multiple of `TierPlace.alignment`. Read by `save`, written by `load`, and untouched by
            its owner until the call's future is done.
    """

    key: PageKey
    buffer: memoryview


class TierPlace(msgspec.Struct, frozen=True, kw_only=True):
    """What a tier is opened with.

    Attributes:
        identity: Hex digest of everything that shapes the pages: weights, config, tokenizer, dtype,
            page layout, numerics version. Records of another identity must never be found; keys
            differ too, this is for tidiness and quotas.
        record_bytes: Size of a record by group, multiples of `alignment`.
        capacity_bytes: Most bytes to hold; None leaves it to the tier.
        path: The folder given with `--kv-offload-disk-path`, for tiers that live in one.
        alignment: Of buffers' addresses and sizes, such as direct disk access wants.
        ratios: Records of a group to make room for with each of group 0; 1 where none is named.
    """

    identity: str
    record_bytes: dict[int, int]
    capacity_bytes: int | None = None
    path: str | None = None
    alignment: int = 4096
    ratios: dict[int, float] = {}


class TierStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a tier holds now, and what it gave up so far.

    Attributes:
        num_records: Records held.
        used_bytes: Their size.
        capacity_bytes: Most bytes it will hold; None without a limit.
        num_evicted: Records given up for others.
        num_corrupt: Records found damaged, and dropped.
    """

    num_records: int = 0
    used_bytes: int = 0
    capacity_bytes: int | None = None
    num_evicted: int = 0
    num_corrupt: int = 0


class KvTier(Protocol):
    """A store of records; every method may be called from several threads.

    Calls return at once; the future tells the outcome. Cancelling one that has not begun means that
    its buffers are never touched. A call that fails sets its future's exception, and costs
    its caller a recomputation, never a request. Each call may be repeated: saving a key that is
    held already is a success that may write nothing.
    """

    def contains(self, keys: Sequence[PageKey]) -> Future[list[bool]]:
        """Which of the keys are held, parallel to them; says nothing about the next moment."""
        ...

    def save(self, records: Sequence[TierRecord]) -> Future[list[bool]]:
        """Keep copies; False for each that found no room."""
        ...

    def load(self, records: Sequence[TierRecord]) -> Future[list[bool]]:
        """Fill the buffers; False for each key that is not held (its buffer's content is void)."""
        ...

    def drop(self, keys: Sequence[PageKey]) -> Future[None]:
        """Forget keys; those not held are ignored."""
        ...

    def stats(self) -> TierStats:
        """Counts of now; cheap, called with every metrics scrape."""
        ...

    def close(self) -> None:
        """Finish or give up what is under way, and release everything; further calls fail."""
        ...
