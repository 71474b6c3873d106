"""Who runs next: requests that wait, by priority and then by arrival.

Knows nothing of memory; whether the next one fits is not asked here.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegainfer_core.engine.sequence import Sequence

MAX_OVERTAKES = 256
"""Requests of better priority that may pass the longest-waiting one before it is next."""


class WaitingQueue:
    """First come, first served within a priority; lower priorities go first.

    A preempted sequence keeps its place in the order of arrival, so it comes back to the head of
    its priority. So that nobody waits for ever, the one that arrived first is next after
    `max_overtakes` others have passed it, whatever their priority.
    """

    def __init__(self, max_overtakes: int = MAX_OVERTAKES) -> None:
        self._by_rank: list[tuple[int, int]] = []
        self._by_serial: list[int] = []
        self._sequences: dict[int, Sequence] = {}
        self._serials: dict[int, int] = {}
        self._max_overtakes = max_overtakes
        self._num_overtakes = 0
        self._next_serial = 0

    def __len__(self) -> int:
        """Sequences that wait."""
        return len(self._sequences)

    def push(self, sequence: Sequence) -> None:
        """Queue a new sequence, which gets the next serial, or one that was preempted."""
        if sequence.serial < 0:
            sequence.serial = self._next_serial
            self._next_serial += 1
        insort(self._by_rank, sequence.rank)
        insort(self._by_serial, sequence.serial)
        self._sequences[sequence.serial] = sequence
        self._serials[sequence.request_id] = sequence.serial

    def peek(self) -> Sequence | None:
        """The next one, None when nobody waits."""
        if not self._by_serial:
            return None
        overdue = self._num_overtakes >= self._max_overtakes
        serial = self._by_serial[0] if overdue else self._by_rank[0][1]
        return self._sequences[serial]

    def pop(self) -> Sequence:
        """Take the next one out.

        Raises:
            IndexError: Nobody waits.
        """
        sequence = self.peek()
        if sequence is None:
            raise IndexError("the queue is empty")
        if sequence.serial != self._by_serial[0]:
            self._num_overtakes += 1
        self._take(sequence)
        return sequence

    def remove(self, request_id: int) -> Sequence | None:
        """Take a request out wherever it stands; None when it does not wait."""
        serial = self._serials.get(request_id)
        if serial is None:
            return None
        sequence = self._sequences[serial]
        self._take(sequence)
        return sequence

    def _take(self, sequence: Sequence) -> None:
        serial = sequence.serial
        if serial == self._by_serial[0]:
            self._num_overtakes = 0
        del self._by_serial[bisect_left(self._by_serial, serial)]
        del self._by_rank[bisect_left(self._by_rank, sequence.rank)]
        del self._sequences[serial]
        del self._serials[sequence.request_id]
