"""Keeps a guard's breakers and counters. Makes no call, and takes no lock: the guard holds one."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import msgspec

from pegainfer_core.offload.breaker import Breaker, BreakerState
from pegainfer_core.offload.guard_stats import GuardPolicy, GuardStats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pegainfer_core.kv import TierStats
    from pegainfer_core.offload.guard_attempt import Attempt, Verdict

logger = logging.getLogger(__name__)


class GuardBooks:
    """Says which calls may be made, and learns how they ended.

    Args:
        name: Of the tier.
        policy: When its patience ends.
    """

    def __init__(self, name: str, policy: GuardPolicy) -> None:
        self._name = name
        limits = (policy.max_failures, policy.cool_down_s, policy.max_cool_down_s)
        self._reads, self._writes = Breaker(*limits), Breaker(*limits)
        self._counts = GuardStats()

    def stats(self, held: Mapping[Attempt, int], tier: TierStats) -> GuardStats:
        """The counts, completed by what others know."""
        return msgspec.structs.replace(
            self._counts,
            reads=self._reads.state,
            writes=self._writes.state,
            num_opened=self._reads.num_opened + self._writes.num_opened,
            num_held_calls=len(held),
            held_bytes=sum(held.values()),
            tier=tier,
        )

    def admits(self, attempt: Attempt, *, holding: bool) -> bool:
        """Whether a call may be made; if so, its end must be told here.

        Args:
            attempt: The call.
            holding: Calls that were given up still hold buffers.
        """
        breakers = (self._reads,) if attempt.is_read else (self._reads, self._writes)
        if holding and any(b.state is not BreakerState.CLOSED for b in breakers):
            return False
        if not all(breaker.admits() for breaker in breakers):
            return False
        return breakers[-1].begin() if attempt.is_proof else True

    def skip(self) -> None:
        """A call was not made."""
        self._count(num_skipped=1)

    def withdraw(self, attempt: Attempt) -> None:
        """A call was taken back before it began."""
        if attempt.is_proof:
            self._breaker(attempt).withdraw()

    def time_out(self, attempt: Attempt, why: str) -> None:
        """A call passed its deadline."""
        self._count(num_timeouts=1)
        self._fail(attempt, why)

    def record(self, attempt: Attempt, verdict: Verdict) -> None:
        """A call ended in time."""
        breaker = self._breaker(attempt)
        if verdict.withdrawn:
            self.withdraw(attempt)
        elif verdict.error:
            self._count(num_failures=1)
            self._fail(attempt, verdict.error)
        elif verdict.damaged:
            num_damaged = len(verdict.damaged)
            self._count(num_corrupt=num_damaged)
            self._fail(attempt, f"{num_damaged} loaded records were damaged", num_damaged)
        elif attempt.is_proof:
            if breaker.state is not BreakerState.CLOSED:
                logger.warning("KV offload tier %s works again", self._name)
            breaker.succeed()
        self._measure(attempt, verdict)

    def note(self, why: str) -> None:
        """Something failed that counts against nobody."""
        self._counts = msgspec.structs.replace(self._counts, last_error=why)

    def _measure(self, attempt: Attempt, verdict: Verdict) -> None:
        num_bytes = attempt.bytes_of(verdict.found)
        if not num_bytes:
            return
        num_records, took_s = sum(verdict.found), time.monotonic() - attempt.posted_s
        if attempt.is_read:
            self._count(loaded_records=num_records, loaded_bytes=num_bytes, load_s=took_s)
        else:
            self._count(saved_records=num_records, saved_bytes=num_bytes, save_s=took_s)

    def _breaker(self, attempt: Attempt) -> Breaker:
        return self._reads if attempt.is_read else self._writes

    def _fail(self, attempt: Attempt, why: str, count: int = 1) -> None:
        breaker = self._breaker(attempt)
        num_opened = breaker.num_opened
        breaker.fail(count)
        self.note(why)
        if breaker.num_opened > num_opened:
            logger.warning("KV offload tier %s is cut off for a while: %s", self._name, why)

    def _count(self, **more: float) -> None:
        counts = self._counts
        sums = {name: getattr(counts, name) + value for name, value in more.items()}
        self._counts = msgspec.structs.replace(counts, **sums)
