"""A scheduler's requests from acceptance to their end: who waits, and who runs in which slot.

Does not know who starts when: that is admission's, and who is preempted the scheduler's.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from pegainfer_core.engine.queue import WaitingQueue
from pegainfer_core.engine.running import RunningSet
from pegainfer_core.engine.sequence import Sequence
from pegainfer_core.engine.slots import SlotPool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pegainfer_core.contract import RejectReason
    from pegainfer_core.engine.kv_offload import KvOffload
    from pegainfer_core.engine.ledger import Ledger
    from pegainfer_core.engine.step import ModelRunner


class Roster:
    """Where each open request is, and its ways in, out and back into the queue.

    Attributes:
        waiting: New and preempted requests, without a slot.
        running: Those with a slot.
        slots: The slots that nobody has.
        num_preemptions: Since start.

    Args:
        num_slots: Most requests that run at once.
        offload: Takes the pages of a sequence that leaves.
        runner: Keeps something of each running request.
    """

    def __init__(self, num_slots: int, offload: KvOffload, runner: ModelRunner) -> None:
        self.waiting = WaitingQueue()
        self.running = RunningSet()
        self.slots = SlotPool(num_slots)
        self.num_preemptions = 0
        self._offload, self._runner = offload, runner

    def __bool__(self) -> bool:
        """Whether any request is open."""
        return bool(self.waiting or self.running)

    def __iter__(self) -> Iterator[Sequence]:
        """All open requests: those that run, then those that wait."""
        return chain(self.running, self.waiting)

    def enter(self, request_id: int, accepted: Sequence | RejectReason, ledger: Ledger) -> None:
        """Queue a request that was accepted, or tell why it can never be served."""
        if isinstance(accepted, Sequence):
            self.waiting.push(accepted)
        else:
            ledger.reject(request_id, accepted)

    def abort(self, request_id: int, ledger: Ledger) -> None:
        """End a request wherever it is; unknown and ended ones are ignored."""
        running = self.running.get(request_id)
        if running is not None:
            self.leave(running)
        elif self.waiting.remove(request_id) is None:
            return
        ledger.abort(request_id)

    def preempt(self, sequence: Sequence) -> None:
        """Take everything from a running sequence and queue it again."""
        self.leave(sequence)
        sequence.preempted()
        self.num_preemptions += 1
        self.waiting.push(sequence)

    def leave(self, sequence: Sequence) -> None:
        """Take everything from a running sequence."""
        self.running.remove(sequence)
        self._offload.release(sequence)
        self.slots.give_back(sequence.slot)
        self._runner.forget(sequence.request_id)
        sequence.slot = -1
