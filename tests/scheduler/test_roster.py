"""Requests change their place in one way only, and clients hear of it once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pegainfer_core.contract import EmptyPrompt, GenerateRequest, SamplingParams
from pegainfer_core.engine import Ledger, NoOffload, Roster, Sequence

if TYPE_CHECKING:
    from pegainfer_core.engine import LaunchedStep, StepPlan

NUM_SLOTS = 2


class Desk:
    """A roster, the ledger, and what sequences held as they left."""

    def __init__(self) -> None:
        self.released: list[tuple[int, int]] = []
        self.forgotten: list[int] = []
        self.ledger = Ledger()
        self.roster = Roster(NUM_SLOTS, _Pages(self), _Runner(self))

    def enter(self, request_id: int) -> Sequence:
        request = GenerateRequest(
            request_id=request_id, prompt_token_ids=[1], params=SamplingParams(max_tokens=4)
        )
        self.ledger.open(request)
        sequence = Sequence(request, max_tokens=4)
        self.roster.enter(request_id, sequence, self.ledger)
        return sequence

    def run(self, sequence: Sequence) -> None:
        """What an admission does."""
        assert self.roster.waiting.remove(sequence.request_id) is sequence
        sequence.slot = self.roster.slots.take()
        self.roster.running.add(sequence)

    def terminals(self) -> list[tuple[str, int]]:
        frame = self.ledger.take_frame()
        return [(type(event).__name__, event.request_id) for event in frame.events] if frame else []


class _Pages(NoOffload):
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def release(self, sequence: Sequence) -> None:
        assert self._desk.roster.running.get(sequence.request_id) is None
        self._desk.released.append((sequence.request_id, sequence.slot))


class _Runner:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def launch(self, plan: StepPlan) -> LaunchedStep:
        raise AssertionError("a roster launches nothing")

    def forget(self, request_id: int) -> None:
        self._desk.forgotten.append(request_id)

    def raise_if_lost(self) -> None:
        pass

    def close(self) -> None:
        raise AssertionError("a roster closes nothing")


def test_a_request_waits_runs_and_leaves() -> None:
    desk = Desk()
    assert not desk.roster
    one, two = desk.enter(1), desk.enter(2)
    assert desk.roster and list(desk.roster.waiting) == [one, two]
    desk.run(two)
    assert list(desk.roster) == [two, one]
    slot = two.slot
    desk.roster.leave(two)
    assert desk.released == [(2, slot)] and desk.forgotten == [2] and two.slot == -1
    assert len(desk.roster.slots) == NUM_SLOTS and list(desk.roster) == [one]
    assert desk.terminals() == []


def test_who_cannot_be_served_is_told_and_not_queued() -> None:
    desk = Desk()
    desk.ledger.open(GenerateRequest(request_id=7, prompt_token_ids=[]))
    desk.roster.enter(7, EmptyPrompt(), desk.ledger)
    assert not desk.roster
    assert desk.terminals() == [("Rejected", 7)]


@pytest.mark.parametrize("runs", [False, True])
def test_an_abort_ends_a_request_wherever_it_is(runs: bool) -> None:
    desk = Desk()
    sequence = desk.enter(3)
    if runs:
        desk.run(sequence)
    desk.roster.abort(3, desk.ledger)
    assert not desk.roster and len(desk.roster.slots) == NUM_SLOTS
    assert [request_id for request_id, _ in desk.released] == desk.forgotten == [3] * runs
    ((_, request_id),) = desk.terminals()
    assert request_id == 3
    desk.roster.abort(3, desk.ledger)
    desk.roster.abort(99, desk.ledger)
    assert desk.terminals() == []


def test_who_is_preempted_waits_again_before_later_ones() -> None:
    desk = Desk()
    one = desk.enter(1)
    desk.run(one)
    desk.enter(2)
    desk.roster.preempt(one)
    assert desk.roster.num_preemptions == 1
    assert desk.roster.waiting.peek() is one and len(desk.roster.waiting) == 2
    assert not desk.roster.running
    assert one.slot == -1 and len(desk.roster.slots) == NUM_SLOTS
    assert desk.terminals() == []
