"""Counts what KV offload does, and puts it together with what its parts know."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pegainfer_core.contract import KvOffloadMetrics, KvTierMetrics
from pegainfer_core.offload import HOST, BreakerState

if TYPE_CHECKING:
    from pegainfer_core.offload import HostPool, LowerTier, OffloadThread, Restore


class OffloadCounts:
    """Counters of the engine's thread.

    Attributes:
        query_pages: Pages of prompts that the device did not hold.
        num_skipped: Prefixes found whose restore did not pay.
    """

    def __init__(self) -> None:
        self.query_pages = 0
        self.num_skipped = 0
        self._num_restores = 0
        self._num_failures = 0
        self._hit_pages: Counter[str] = Counter()

    def take(self, restore: Restore) -> None:
        """A restore is finished."""
        self.num_skipped += restore.skipped
        self._num_failures += restore.failed
        if restore.num_landed and not restore.cancelled:
            self._num_restores += 1
            self._hit_pages.update(restore.num_by_source)

    def take_with_state(self, state: Restore, pages: Restore | None, num_shared: int) -> None:
        """A restore of a state is finished, and with it that of the pages before it.

        Args:
            state: Landed only if the pages did too.
            pages: Those that were not on the device.
            num_shared: Pages on the device that were worth nothing without the state.
        """
        self.num_skipped += state.skipped
        self._num_failures += state.failed
        if state.num_landed and not state.cancelled:
            self._num_restores += 1
            for source in state.num_by_source:
                self._hit_pages[source] += num_shared
            if pages is not None:
                self._hit_pages.update(pages.num_by_source)

    def metrics(
        self,
        thread: OffloadThread,
        pool: HostPool,
        page_tokens: int,
        *,
        num_restoring: int,
        num_held_pages: int,
    ) -> KvOffloadMetrics:
        """A snapshot."""
        return KvOffloadMetrics(
            num_restores=self._num_restores,
            restored_tokens=self._hit_pages.total() * page_tokens,
            num_restore_failures=self._num_failures,
            num_skipped_restores=self.num_skipped,
            num_restoring=num_restoring,
            num_held_pages=num_held_pages,
            tiers=[self._host(thread, pool, page_tokens)]
            + [self._lower(tier, page_tokens) for tier in thread.tiers],
        )

    def _host(self, thread: OffloadThread, pool: HostPool, page_tokens: int) -> KvTierMetrics:
        return KvTierMetrics(
            name=HOST,
            num_records=len(pool),
            used_bytes=len(pool) * pool.record_bytes,
            capacity_bytes=pool.num_slots * pool.record_bytes,
            query_tokens=self.query_pages * page_tokens,
            hit_tokens=self._hit_pages[HOST] * page_tokens,
            saved_bytes=thread.saves.num_bytes,
            save_s=thread.saves.seconds,
            loaded_bytes=thread.loads.num_bytes,
            load_s=thread.loads.seconds,
            num_unsaved=thread.saver.num_unsaved,
            num_evicted=pool.num_evicted,
            num_failures=thread.saves.num_failed + thread.loads.num_failed,
        )

    def _lower(self, tier: LowerTier, page_tokens: int) -> KvTierMetrics:
        guard = tier.guard.stats()
        return KvTierMetrics(
            name=tier.name,
            num_records=guard.tier.num_records,
            used_bytes=guard.tier.used_bytes,
            capacity_bytes=guard.tier.capacity_bytes,
            query_tokens=tier.query_pages * page_tokens,
            hit_tokens=self._hit_pages[tier.name] * page_tokens,
            saved_bytes=guard.saved_bytes,
            save_s=guard.save_s,
            loaded_bytes=guard.loaded_bytes,
            load_s=guard.load_s,
            num_unsaved=tier.num_dropped,
            num_evicted=guard.tier.num_evicted,
            num_corrupt=guard.num_corrupt + guard.tier.num_corrupt,
            num_failures=guard.num_failures,
            num_timeouts=guard.num_timeouts,
            num_cut_off=guard.num_opened,
            is_cut_off=BreakerState.OPEN in (guard.reads, guard.writes),
            held_bytes=guard.held_bytes,
        )
