"""The tier itself: records by key, the one used longest ago goes first, one thread does all."""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from pegainfer_core.kv import TierStats

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from pegainfer_core.kv import PageKey, TierPlace, TierRecord

_DEFAULT_CAPACITY_BYTES: Final = 1 << 30


class ShelfTier:
    """Implements `KvTier`. A pool's futures have the right manners: they can be cancelled."""

    def __init__(self, place: TierPlace) -> None:
        self._capacity_bytes = place.capacity_bytes or _DEFAULT_CAPACITY_BYTES
        self._shelf: OrderedDict[PageKey, bytes] = OrderedDict()
        self._used_bytes = 0
        self._num_evicted = 0
        self._worker = ThreadPoolExecutor(1, "shelf")

    def contains(self, keys: Sequence[PageKey]) -> Future[list[bool]]:
        """As in `KvTier`."""
        return self._worker.submit(lambda: [key in self._shelf for key in keys])

    def save(self, records: Sequence[TierRecord]) -> Future[list[bool]]:
        """As in `KvTier`."""
        return self._worker.submit(lambda: [self._save(*record) for record in records])

    def load(self, records: Sequence[TierRecord]) -> Future[list[bool]]:
        """As in `KvTier`."""
        return self._worker.submit(lambda: [self._load(*record) for record in records])

    def drop(self, keys: Sequence[PageKey]) -> Future[None]:
        """As in `KvTier`."""
        return self._worker.submit(self._drop_all, keys)

    def stats(self) -> TierStats:
        """As in `KvTier`."""
        return TierStats(
            num_records=len(self._shelf),
            used_bytes=self._used_bytes,
            capacity_bytes=self._capacity_bytes,
            num_evicted=self._num_evicted,
        )

    def close(self) -> None:
        """As in `KvTier`; from now on the pool refuses calls."""
        self._worker.shutdown(cancel_futures=True)
        self._shelf.clear()

    def _save(self, key: PageKey, buffer: memoryview) -> bool:
        if key in self._shelf:
            self._shelf.move_to_end(key)
            return True
        while self._shelf and self._used_bytes + buffer.nbytes > self._capacity_bytes:
            self._drop(next(iter(self._shelf)))
            self._num_evicted += 1
        if buffer.nbytes > self._capacity_bytes:
            return False
        self._shelf[key] = bytes(buffer)
        self._used_bytes += buffer.nbytes
        return True

    def _load(self, key: PageKey, buffer: memoryview) -> bool:
        if key not in self._shelf:
            return False
        self._shelf.move_to_end(key)
        buffer[:] = self._shelf[key]
        return True

    def _drop_all(self, keys: Sequence[PageKey]) -> None:
        for key in keys:
            self._drop(key)

    def _drop(self, key: PageKey) -> None:
        self._used_bytes -= len(self._shelf.pop(key, b""))
