"""One guarded call of a tier, in two futures: what came of it, and whose its buffers are.

Decides nothing; the guard fills it in.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pegainfer_core.kv import TierRecord

T = TypeVar("T")


class TierCall(Generic[T]):
    """What a guard returns at once for each call.

    The usual end sets `settled`, then `outcome`. When a deadline passes first, `outcome` is set
    then, and `settled` stays open for as long as the tier may touch the buffers, perhaps for ever.
    So: act on `outcome`, and give the buffers to others in a callback of `settled`.

    Callbacks run on the tier's or the guard's threads, some before `GuardedTier.load` returns:
    they must not block, and do best to post to the owner's own queue. Neither future may be
    cancelled by its reader; `cancel` does that.

    Attributes:
        outcome: Always ends with a result, never with an exception, and no later than the deadline.
        settled: Ends (with None) once the tier is done with the buffers.
        records: The records whose buffers are lent; empty for calls without buffers.
        timed_out: Whether the deadline passed before the tier was done. Stable once `outcome` is.
    """

    __slots__ = ("_cancel", "outcome", "records", "settled", "timed_out")

    def __init__(self, records: Sequence[TierRecord], cancel: Callable[[], bool]) -> None:
        self.outcome: Future[T] = Future()
        self.settled: Future[None] = Future()
        self.records = records
        self.timed_out = False
        self._cancel = cancel

    @property
    def holds_buffers(self) -> bool:
        """Whether the tier may still touch the buffers."""
        return bool(self.records) and not self.settled.done()

    def cancel(self) -> bool:
        """Give the call up if the tier has not begun it.

        Returns:
            True when it was: both futures are done now, the outcome says "nothing", and neither
            the breaker nor the counters saw a failure. False changes nothing.
        """
        return self._cancel()
