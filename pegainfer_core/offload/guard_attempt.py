"""The state of one guarded call, and the verdict on what the tier answered.

Calls the tier and reads its answer; what either means for the breaker is the guard's business.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from pegainfer_core.offload.tier_call import TierCall

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pegainfer_core.kv import KvTier, PageKey, TierRecord
    from pegainfer_core.offload.deadlines import Deadline
    from pegainfer_core.offload.record import RecordLayout

What = Literal["contains", "save", "load", "drop"]


class Attempt:
    """One call on its way through a guard. Fields are written under the guard's lock.

    Attributes:
        what: The tier's method.
        keys: Its keys, those of the records included.
        records: Its records, if it has any.
        call: What the caller holds.
        num_bytes: Size of the buffers.
        posted_s: When it was made.
        begun: The tier was called, so that it may touch the buffers.
        inner: What the tier returned.
        withdrawn: Its caller took it back.
        deadline: When it is given up.
    """

    def __init__(
        self,
        what: What,
        keys: list[PageKey],
        records: list[TierRecord],
        cancel: Callable[[Attempt], bool],
    ) -> None:
        self.what = what
        self.keys = keys
        self.records = records
        self.call: TierCall[list[bool]] = TierCall(records, lambda: cancel(self))
        self.num_bytes = sum(record.buffer.nbytes for record in records)
        self.posted_s = time.monotonic()
        self.begun = False
        self.inner: Future[object] | None = None
        self.withdrawn = False
        self._decided = False
        self.deadline: Deadline | None = None
        self._settling = threading.Lock()

    @property
    def is_proof(self) -> bool:
        """Whether success says that the tier is well: it moved bytes."""
        return self.what in ("load", "save")

    @property
    def is_read(self) -> bool:
        """Whether it asks for what was saved."""
        return self.what in ("contains", "load")

    def start(self, tier: KvTier) -> Future[object]:
        """Make the tier's call.

        Raises:
            TypeError: The tier returned no future.
        """
        argument = self.records if self.is_proof else self.keys
        inner: object = getattr(tier, self.what)(argument)
        if not isinstance(inner, Future):
            raise TypeError(f"it returned a {type(inner).__name__}, no Future")
        return cast("Future[object]", inner)

    def decide(self) -> bool:
        """Fix the outcome; False when that was done before."""
        first = not self._decided
        self._decided = True
        return first

    def is_decided(self) -> bool:
        """Whether the outcome is fixed."""
        return self._decided

    def finish(self, found: list[bool], *, settle: bool) -> None:
        """Tell the caller the outcome, and that its buffers are free if they are."""
        if self.deadline is not None:
            self.deadline.cancel()
        if settle:
            self.settle()
        self.call.outcome.set_result(found)

    def settle(self) -> None:
        """Tell the caller, once, that its buffers are free."""
        if self._settling.acquire(blocking=False):
            self.call.settled.set_result(None)

    def bytes_of(self, found: list[bool]) -> int:
        """Size of the buffers whose records were found or taken."""
        return sum(
            record.buffer.nbytes for record, held in zip(self.records, found, strict=False) if held
        )


class Verdict(NamedTuple):
    """What a tier's answer is worth.

    Attributes:
        found: The answer, less what was not proven.
        damaged: Keys of loaded records that are not what they should be.
        error: Why the call failed, empty when it did not.
        withdrawn: The caller took the call back before it began.
    """

    found: list[bool]
    damaged: Sequence[PageKey] = ()
    error: str = ""
    withdrawn: bool = False

    @classmethod
    def of_error(cls, attempt: Attempt, error: BaseException) -> Verdict:
        """Of a call that raised."""
        why = f"{attempt.what} raised {type(error).__name__}: {error}"
        return cls([False] * len(attempt.keys), error=" ".join(why.split()))

    @classmethod
    def of_answer(
        cls, attempt: Attempt, inner: Future[object], layouts: Mapping[int, RecordLayout]
    ) -> Verdict:
        """Of a call that is done. Reads every byte of a load."""
        nothing = [False] * len(attempt.keys)
        if inner.cancelled() and attempt.withdrawn:
            return cls(nothing, withdrawn=True)
        try:
            answer = inner.result()
        except BaseException as error:  # A tier's thread has nothing to interrupt.
            return cls.of_error(attempt, error)
        if attempt.what == "drop":
            return cls([True] * len(attempt.keys))
        found = _flags(answer)
        if found is None or len(found) != len(nothing):
            why = f"{attempt.what} of {len(nothing)} answered {str(answer)[:80]}"
            return cls(nothing, error=why)
        return _proven(attempt, found, layouts) if attempt.what == "load" else cls(found)


def _flags(answer: object) -> list[bool] | None:
    if not isinstance(answer, list) or not all(isinstance(flag, bool) for flag in answer):
        return None
    return answer


def _proven(attempt: Attempt, found: list[bool], layouts: Mapping[int, RecordLayout]) -> Verdict:
    damaged = []
    for i, (key, buffer) in enumerate(attempt.records):
        if found[i] and not layouts[key.group].holds(key, buffer):
            found[i] = False
            damaged.append(key)
    return Verdict(found, damaged)
