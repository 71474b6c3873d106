"""Who runs next: requests that wait, by priority and then by arrival.

Knows nothing of memory; whether the next one fits is not asked here.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pegainfer_core.engine.sequence import Sequence

MAX_OVERTAKES = 256
"""Requests of better priority that may pass the longest-waiting one before it is next."""

MAX_PASSES = 64
"""Requests that may pass one that does not fit before everybody waits for it."""

MAX_LOOK = 4
"""Requests behind one that does not fit that are tried at once."""


class WaitingQueue:
    """First come, first served within a priority; lower priorities go first.

    A preempted sequence keeps its place in the order of arrival, so it comes back to the head of
    its priority. So that nobody waits for ever, the one that arrived first is next after
    `max_overtakes` others have passed it, whatever their priority.

    One that does not fit yet does not hold up those behind it at once: `candidates` offers some of
    the same priority too, until `max_passes` have gone first. Then all wait, and it gets the room
    that others leave.
    """

    def __init__(self, max_overtakes: int = MAX_OVERTAKES, max_passes: int = MAX_PASSES) -> None:
        self._by_rank: list[tuple[int, int]] = []
        self._by_serial: list[int] = []
        self._sequences: dict[int, Sequence] = {}
        self._serials: dict[int, int] = {}
        self._max_overtakes = max_overtakes
        self._num_overtakes = 0
        self._max_passes = max_passes
        self._num_passes: dict[int, int] = {}
        self._next_serial = 0

    def __len__(self) -> int:
        """Sequences that wait."""
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        """All that wait, in no order."""
        return iter(self._sequences.values())

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
        serial = self._by_serial[0] if self._is_overdue else self._by_rank[0][1]
        return self._sequences[serial]

    def pop(self) -> Sequence:
        """Take the next one out.

        Raises:
            IndexError: Nobody waits.
        """
        sequence = self.peek()
        if sequence is None:
            raise IndexError("the queue is empty")
        self.take(sequence)
        return sequence

    def candidates(self) -> Iterator[Sequence]:
        """Who may start: the next one, and while it is not taken, some behind it.

        Whoever starts one calls `take` before asking for another. Nobody passes a sequence that was
        preempted, for it gave up its pages for others before, nor one that others passed too often.
        """
        while (head := self.peek()) is not None:
            yield head
            if head.serial in self._sequences:
                break
        else:
            return
        for serial in self._behind(head):
            if self._num_passes.get(head.serial, 0) >= self._max_passes:
                return
            sequence = self._sequences[serial]
            yield sequence
            if serial not in self._sequences:
                self._num_passes[head.serial] = self._num_passes.get(head.serial, 0) + 1

    def take(self, sequence: Sequence) -> None:
        """Take out one that starts."""
        if sequence.serial != self._by_serial[0]:
            self._num_overtakes += 1
        self._drop(sequence)

    def remove(self, request_id: int) -> Sequence | None:
        """Take a request out wherever it stands; None when it does not wait."""
        serial = self._serials.get(request_id)
        if serial is None:
            return None
        sequence = self._sequences[serial]
        self._drop(sequence)
        return sequence

    @property
    def _is_overdue(self) -> bool:
        """Whether the one that arrived first is next, whatever its priority."""
        return self._num_overtakes >= self._max_overtakes

    def _behind(self, head: Sequence) -> list[int]:
        """Serials of the first few that wait behind one and may pass it."""
        if head.num_preemptions or self._is_overdue:
            return []
        start = bisect_left(self._by_rank, head.rank) + 1
        behind = islice(self._by_rank, start, start + MAX_LOOK)
        return [serial for priority, serial in behind if priority == head.rank[0]]

    def _drop(self, sequence: Sequence) -> None:
        serial = sequence.serial
        if serial == self._by_serial[0]:
            self._num_overtakes = 0
        del self._by_serial[bisect_left(self._by_serial, serial)]
        del self._by_rank[bisect_left(self._by_rank, sequence.rank)]
        del self._sequences[serial]
        self._num_passes.pop(serial, None)
        del self._serials[sequence.request_id]
