"""What a guard has counted, and the limits it enforces."""

from __future__ import annotations

import msgspec

from pegainfer_core.kv import TierStats
from pegainfer_core.offload.breaker import BreakerState


class GuardPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When a tier's patience ends.

    Attributes:
        call_deadline_s: Longest time for a call, besides what its bytes take.
        min_bytes_per_s: The slowest rate that is tolerated: a call has a second more for so many
            bytes of its own and of the calls before it that are not done.
        max_failures: Failures in a row that open the breaker. Each damaged record counts as one.
        cool_down_s: How long it then stays open, doubled after each failed probe.
        max_cool_down_s: The longest it stays open.
    """

    call_deadline_s: float = 2.0
    min_bytes_per_s: float = 100e6
    max_failures: int = 3
    cool_down_s: float = 5.0
    max_cool_down_s: float = 300.0

    def deadline_s(self, num_bytes: int) -> float:
        """Longest time for a call that moves so many bytes."""
        return self.call_deadline_s + num_bytes / self.min_bytes_per_s


class GuardStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one guarded tier since its start.

    Attributes:
        reads: The breaker of `contains` and `load`.
        writes: The breaker of `save` and `drop`.
        num_failures: Calls that raised or answered nonsense, timeouts and damage not included.
        num_timeouts: Calls that passed their deadline.
        num_corrupt: Loaded records whose trailer did not prove them.
        num_skipped: Calls not made because a breaker was open.
        num_opened: Times a breaker opened.
        num_held_calls: Calls given up whose buffers the tier may still touch.
        held_bytes: Size of those buffers.
        loaded_records: Records loaded and proven.
        loaded_bytes: Their size.
        load_s: Sum of the times of the calls that loaded them.
        saved_records: Records the tier took.
        saved_bytes: Their size.
        save_s: Sum of the times of the calls that saved them.
        last_error: What the last failure said, empty before the first.
        tier: What the tier itself said last.
    """

    reads: BreakerState = BreakerState.CLOSED
    writes: BreakerState = BreakerState.CLOSED
    num_failures: int = 0
    num_timeouts: int = 0
    num_corrupt: int = 0
    num_skipped: int = 0
    num_opened: int = 0
    num_held_calls: int = 0
    held_bytes: int = 0
    loaded_records: int = 0
    loaded_bytes: int = 0
    load_s: float = 0.0
    saved_records: int = 0
    saved_bytes: int = 0
    save_s: float = 0.0
    last_error: str = ""
    tier: TierStats = TierStats()
