"""A tier under test: opens it, lends it buffers between guard zones, and closes it at the end."""

from __future__ import annotations

import hashlib
import mmap
import random
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from pegainfer_core.kv import PageKey, TierPlace, TierRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from pegainfer_core.kv import KvTier

T = TypeVar("T")

GAP_BYTES: Final = 4096
_CANARY: Final = b"\xa5" * GAP_BYTES
_VOID: Final = b"\x5a"


class Lent(NamedTuple):
    """Buffers lent to a tier, each with a guard zone behind it.

    Attributes:
        records: What is given to the tier.
        gaps: The guard zones.
    """

    records: list[TierRecord]
    gaps: list[memoryview]

    def checked(self, bench: TierBench) -> list[str]:
        """For each buffer "right" or "other bytes"."""
        right = (record.buffer == bench.content(record.key) for record in self.records)
        return ["right" if same else "other bytes" for same in right]

    def are_gaps_whole(self) -> bool:
        """Whether nobody wrote outside the buffers."""
        return all(gap == _CANARY for gap in self.gaps)

    def is_void(self, index: int) -> bool:
        """Whether a buffer is as it was lent."""
        return bytes(self.records[index].buffer).strip(_VOID) == b""


class TierBench:
    """What the tests of a tier work with.

    Attributes:
        place: What tiers are opened with unless said otherwise.
        timeout_s: Longest wait for any future.
    """

    def __init__(
        self, open_tier: Callable[[TierPlace], KvTier], place: TierPlace, timeout_s: float
    ) -> None:
        """Open nothing yet."""
        self.place = place
        self.timeout_s = timeout_s
        self._open_tier = open_tier
        self._open: list[KvTier] = []
        self._tier: KvTier | None = None

    @property
    def tier(self) -> KvTier:
        """The tier of this test, opened when first asked for."""
        if self._tier is None:
            self._tier = self.open()
        return self._tier

    def open(self, identity: str | None = None) -> KvTier:
        """Open one more."""
        place = self.place
        if identity is not None:
            place = msgspec.structs.replace(place, identity=identity)
        tier = self._open_tier(place)
        self._open.append(tier)
        return tier

    def close(self, tier: KvTier) -> None:
        """Close a tier now."""
        self._open.remove(tier)
        tier.close()

    def close_all(self) -> None:
        """Close what is left open."""
        while self._open:
            self._open.pop().close()

    def key(self, number: int, group: int = 0) -> PageKey:
        """A key by number."""
        return PageKey(hashlib.sha256(f"key {number}".encode()).digest(), group)

    def keys(self, numbers: Sequence[int], group: int = 0) -> list[PageKey]:
        """Keys by number."""
        return [self.key(number, group) for number in numbers]

    def content(self, key: PageKey) -> bytes:
        """What the record of a key holds: random bytes that depend on the key."""
        seed = key.digest + bytes([key.group])
        return random.Random(seed).randbytes(self.place.record_bytes[key.group])

    def filled(self, keys: Sequence[PageKey]) -> Lent:
        """Buffers with each key's content."""
        lent = self.lend(keys)
        for key, buffer in lent.records:
            buffer[:] = self.content(key)
        return lent

    def lend(self, keys: Sequence[PageKey]) -> Lent:
        """Buffers to load into."""
        sizes = [self.place.record_bytes[key.group] for key in keys]
        slab = memoryview(mmap.mmap(-1, sum(sizes) + len(sizes) * GAP_BYTES or GAP_BYTES))
        records, gaps, offset = [], [], 0
        for key, size in zip(keys, sizes, strict=True):
            buffer, gap = slab[offset : offset + size], slab[offset + size :][:GAP_BYTES]
            buffer[:], gap[:] = _VOID * size, _CANARY
            records.append(TierRecord(key, buffer))
            gaps.append(gap)
            offset += size + GAP_BYTES
        return Lent(records, gaps)

    def save(self, keys: Sequence[PageKey], tier: KvTier | None = None) -> list[bool]:
        """Save the contents of keys, and wait."""
        lent = self.filled(keys)
        return self.wait((tier or self.tier).save(lent.records))

    def load(self, keys: Sequence[PageKey], tier: KvTier | None = None) -> list[str]:
        """Load keys, wait, and compare: "right", "missing", or "other bytes"."""
        lent = self.lend(keys)
        found = self.wait((tier or self.tier).load(lent.records))
        assert len(found) == len(keys), f"load of {len(keys)} records answered {found}"
        assert lent.are_gaps_whole(), "load wrote outside of its buffers"
        checks = zip(lent.checked(self), found, strict=True)
        return [content if held else "missing" for content, held in checks]

    def wait(self, future: Future[T]) -> T:
        """The result of a call."""
        return future.result(self.timeout_s)
