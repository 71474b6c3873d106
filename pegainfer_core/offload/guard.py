"""Stands between the offloader and a tier that may fail, hang, or lie.

Knows neither what a tier is made of nor why it is asked. What goes wrong in a tier ends here: its
callers see hits that are proven, misses, and counters.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import wait
from typing import TYPE_CHECKING, Final

from pegainfer_core.kv import TierStats
from pegainfer_core.offload.deadlines import Deadlines
from pegainfer_core.offload.guard_attempt import Attempt, Verdict
from pegainfer_core.offload.guard_books import GuardBooks
from pegainfer_core.offload.guard_lane import GuardLane
from pegainfer_core.offload.guard_stats import GuardPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from pegainfer_core.kv import KvTier, PageKey, TierRecord
    from pegainfer_core.offload.guard_attempt import What
    from pegainfer_core.offload.guard_stats import GuardStats
    from pegainfer_core.offload.record import RecordLayout
    from pegainfer_core.offload.tier_call import TierCall

logger = logging.getLogger(__name__)

_DEFAULT_POLICY: Final = GuardPolicy()


class GuardedTier:
    """A tier with a deadline, a breaker, counters, and proof of each record it returns.

    Its methods may be called from any thread, never block and never raise. They make the tier's
    call on a thread of the guard's own, because "returns at once" is a promise too.

    A breaker of its own covers reads (`contains`, `load`) and writes (`save`, `drop`); only
    `load` and `save` prove that a tier is well, and no write is made while reads are cut off. A
    half-open breaker lets one of them through as a probe, and none while a call that was given up
    still holds buffers, so that a hanging tier cannot take more and more of them.

    Attributes:
        name: Of the tier, as users write it in `--kv-offload`.
    """

    def __init__(
        self,
        name: str,
        tier: KvTier,
        layouts: Mapping[int, RecordLayout],
        policy: GuardPolicy = _DEFAULT_POLICY,
    ) -> None:
        """Guard an open tier.

        Args:
            name: For messages and metrics.
            tier: Whatever a factory opened.
            layouts: How records of each group lie in their buffers.
            policy: When patience ends.
        """
        self.name = name
        self._tier = tier
        self._layouts = dict(layouts)
        self._policy = policy
        self._lock = threading.RLock()
        self._books = GuardBooks(name, policy)
        self._tier_stats = TierStats()
        self._open_attempts: set[Attempt] = set()
        self._held: dict[Attempt, int] = {}
        self._closed = False
        self._deadlines = Deadlines(f"pegainfer-kv-{name}-deadlines")
        self._lane = GuardLane(f"pegainfer-kv-{name}")
        self._lane.post_once("stats", self._refresh_stats)

    def contains(
        self, keys: Sequence[PageKey], deadline_s: float | None = None
    ) -> TierCall[list[bool]]:
        """Which keys the tier says it holds; all False when it is cut off or fails.

        Args:
            keys: What to look for.
            deadline_s: Replaces the policy's limit.
        """
        return self._call("contains", keys, (), deadline_s)

    def save(
        self, records: Sequence[TierRecord], deadline_s: float | None = None
    ) -> TierCall[list[bool]]:
        """Have records kept that the caller has sealed (`RecordLayout.seal`); False where not."""
        return self._call("save", [record.key for record in records], records, deadline_s)

    def load(
        self, records: Sequence[TierRecord], deadline_s: float | None = None
    ) -> TierCall[list[bool]]:
        """Fill buffers; True only where the trailer proves the record to be its key's.

        Damaged records are counted, and dropped from the tier. Split what is to be copied on
        while the rest is read: a call ends with its last record.
        """
        return self._call("load", [record.key for record in records], records, deadline_s)

    def drop(
        self, keys: Sequence[PageKey], deadline_s: float | None = None
    ) -> TierCall[list[bool]]:
        """Forget keys; True for all when the tier did."""
        return self._call("drop", keys, (), deadline_s)

    def stats(self) -> GuardStats:
        """Counts of now; the tier's own are from its last answer, which this call renews."""
        self._lane.post_once("stats", self._refresh_stats)
        with self._lock:
            return self._books.stats(self._held, self._tier_stats)

    def close(self, timeout_s: float = 5.0) -> bool:
        """Let the calls made so far end, then close the tier; later calls find nothing.

        Args:
            timeout_s: How long to wait for both.

        Returns:
            Whether the tier closed in time. If not, it is left alone; all outcomes are set in
            either case, and calls without a `settled` still hold their buffers.
        """
        with self._lock:
            if self._closed:
                return self._lane.join(timeout_s)
            self._closed = True
            under_way = [attempt.call.outcome for attempt in self._open_attempts]
        begun_s = time.monotonic()
        wait(under_way, timeout_s)
        self._lane.post(self._close_tier)
        left_s = timeout_s - (time.monotonic() - begun_s)
        in_time = self._lane.close(max(left_s, timeout_s / 10))
        self._deadlines.close()
        with self._lock:
            left = list(self._open_attempts)
        for attempt in left:
            self._give_up(attempt, f"{attempt.what} was under way when the tier was closed")
        if not in_time:
            logger.warning("KV offload tier %s did not close in %.1f s", self.name, timeout_s)
        return in_time

    def _call(
        self,
        what: What,
        keys: Sequence[PageKey],
        records: Sequence[TierRecord],
        deadline_s: float | None,
    ) -> TierCall[list[bool]]:
        attempt = Attempt(what, list(keys), list(records), self._cancel)
        with self._lock:
            ahead_bytes = self._bytes_under_way(attempt)
            skipped = bool(keys) and not self._admits(attempt)
            if skipped:
                self._books.skip()
            if skipped or not keys:
                attempt.decide()
            else:
                self._open_attempts.add(attempt)
        if skipped or not keys:
            self._finish(attempt, [False] * len(keys))
            return attempt.call
        limit_s = deadline_s
        if limit_s is None:
            limit_s = self._policy.deadline_s(ahead_bytes + attempt.num_bytes)
        attempt.deadline = self._deadlines.watch(limit_s, lambda: self._expire(attempt))
        self._lane.post(lambda: self._begin(attempt))
        return attempt.call

    def _bytes_under_way(self, attempt: Attempt) -> int:
        """What a call may have to wait for: those of its direction that are not done."""
        under_way = (a for a in self._open_attempts if a.is_read == attempt.is_read)
        return sum(other.num_bytes for other in under_way)

    def _admits(self, attempt: Attempt) -> bool:
        return not self._closed and self._books.admits(attempt, holding=bool(self._held))

    def _begin(self, attempt: Attempt) -> None:
        """On the lane: make the tier's call."""
        with self._lock:
            if attempt.is_decided():
                return
            attempt.begun = True
        try:
            inner = attempt.start(self._tier)
        except BaseException as error:
            self._end(attempt, Verdict.of_error(attempt, error))
            return
        with self._lock:
            attempt.inner = inner
            given_up = attempt.is_decided()
        inner.add_done_callback(lambda done: self._inner_done(attempt, done))
        if given_up:
            inner.cancel()

    def _inner_done(self, attempt: Attempt, inner: Future[object]) -> None:
        """On the tier's thread, mostly: judge what it answered."""
        if attempt.is_decided():  # Nobody waits for the answer; only the buffers come home.
            self._release(attempt)
            return
        self._end(attempt, Verdict.of_answer(attempt, inner, self._layouts))

    def _end(self, attempt: Attempt, verdict: Verdict) -> None:
        with self._lock:
            late = not attempt.decide()
            if not late:
                self._books.record(attempt, verdict)
        if late:
            self._release(attempt)
            return
        self._finish(attempt, verdict.found)
        if verdict.damaged:
            logger.warning(
                "KV offload tier %s returned %d damaged records", self.name, len(verdict.damaged)
            )
            self.drop(verdict.damaged)

    def _expire(self, attempt: Attempt) -> None:
        self._give_up(attempt, f"{attempt.what} passed its deadline", timed_out=True)

    def _give_up(self, attempt: Attempt, why: str, *, timed_out: bool = False) -> None:
        """Answer for a call that is not done; its buffers stay the tier's if it was begun."""
        with self._lock:
            if not attempt.decide():
                return
            attempt.call.timed_out = timed_out
            if timed_out:
                self._books.time_out(attempt, why)
            if attempt.begun:
                self._held[attempt] = attempt.num_bytes
            inner = attempt.inner
        if inner is not None:
            inner.cancel()  # Where that succeeds, `_inner_done` has released the buffers now.
        self._finish(attempt, [False] * len(attempt.keys), settle=not attempt.begun)

    def _cancel(self, attempt: Attempt) -> bool:
        with self._lock:
            if attempt.is_decided() or (attempt.begun and attempt.inner is None):
                return False
            attempt.withdrawn = True
            inner = attempt.inner
            if inner is None:
                attempt.decide()
                self._books.withdraw(attempt)
        if inner is None:
            self._finish(attempt, [False] * len(attempt.keys))
            return True
        return inner.cancel()  # Its callback ends the attempt.

    def _finish(self, attempt: Attempt, found: list[bool], *, settle: bool = True) -> None:
        with self._lock:
            self._open_attempts.discard(attempt)
        attempt.finish(found, settle=settle)

    def _release(self, attempt: Attempt) -> None:
        with self._lock:
            self._held.pop(attempt, None)
        attempt.settle()

    def _refresh_stats(self) -> None:
        try:
            stats = self._tier.stats()
        except Exception as error:
            with self._lock:
                self._books.note(f"stats raised {type(error).__name__}: {error}")
            return
        with self._lock:
            self._tier_stats = stats

    def _close_tier(self) -> None:
        try:
            self._tier.close()
        except Exception:
            logger.exception("KV offload tier %s: close raised", self.name)
