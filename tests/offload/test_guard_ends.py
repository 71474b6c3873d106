"""When a guard cuts its tier off, lets it back in, and how it closes."""

from __future__ import annotations

import threading

import pytest

from pegainfer_core.offload import BreakerState, GuardedTier

from .guard_bench import (
    LAYOUT,
    POLICY,
    SHORT_S,
    WAIT_S,
    blank,
    eventually,
    key,
    outcome,
    raises,
    sealed,
    store,
)
from .scripted_tier import ScriptedTier, done


def fail_loads(guard: GuardedTier, scripted: ScriptedTier, count: int = 3) -> None:
    scripted.script["load"] = raises(OSError("no disk"))
    for _ in range(count):
        outcome(guard.load([blank(1)]))


def test_the_breaker_cuts_a_failing_tier_off(guard: GuardedTier, scripted: ScriptedTier) -> None:
    store(scripted, 1)
    fail_loads(guard, scripted)
    num_calls = len(scripted.calls)
    stats = guard.stats()
    assert (stats.reads, stats.writes) == (BreakerState.OPEN, BreakerState.CLOSED)
    assert stats.num_opened == 1
    for call in (guard.contains([key(1)]), guard.load([blank(1)]), guard.save([sealed(2)])):
        assert outcome(call) == [False] and call.settled.done()
    assert len(scripted.calls) == num_calls and guard.stats().num_skipped == 3


def test_the_breaker_closes_when_a_load_works(brisk: GuardedTier, scripted: ScriptedTier) -> None:
    store(scripted, 1)
    fail_loads(brisk, scripted)
    del scripted.script["load"]
    eventually(lambda: brisk.stats().reads is BreakerState.HALF_OPEN)
    assert outcome(brisk.contains([key(1)])) == [True]
    assert brisk.stats().reads is BreakerState.HALF_OPEN, "a look-up proves nothing"
    assert outcome(brisk.load([blank(1)])) == [True]
    assert brisk.stats().reads is BreakerState.CLOSED


def test_look_ups_that_work_do_not_excuse_loads(guard: GuardedTier, scripted: ScriptedTier) -> None:
    store(scripted, 1)
    scripted.script["load"] = raises(OSError("no disk"))
    for _ in range(3):
        assert outcome(guard.contains([key(1)])) == [True]
        assert outcome(guard.save([sealed(1)])) == [True]
        assert outcome(guard.load([blank(1)])) == [False]
    assert guard.stats().reads is BreakerState.OPEN


def test_a_lying_tier_is_cut_off(guard: GuardedTier, scripted: ScriptedTier) -> None:
    for number in range(3):
        scripted.shelf[key(number)] = bytes(LAYOUT.record_bytes)
    assert outcome(guard.load([blank(n) for n in range(3)])) == [False] * 3
    stats = guard.stats()
    assert stats.reads is BreakerState.OPEN and stats.num_corrupt == 3


def test_a_hanging_tier_is_not_probed_while_it_holds_buffers(
    brisk: GuardedTier, scripted: ScriptedTier
) -> None:
    store(scripted, 1)
    scripted.script["load"] = scripted.hang
    for call in [brisk.load([blank(1)], SHORT_S) for _ in range(3)]:
        assert outcome(call) == [False]
    eventually(lambda: brisk.stats().reads is BreakerState.HALF_OPEN)
    num_calls = len(scripted.calls)
    assert outcome(brisk.load([blank(1)])) == outcome(brisk.contains([key(1)])) == [False]
    assert len(scripted.calls) == num_calls and brisk.stats().num_held_calls == 3
    del scripted.script["load"]
    while scripted.open_calls:
        scripted.open_calls.pop()[0].set_result([False])
    assert outcome(brisk.load([blank(1)])) == [True]
    assert brisk.stats().reads is BreakerState.CLOSED


def test_no_room_is_no_failure(guard: GuardedTier, scripted: ScriptedTier) -> None:
    scripted.script["save"] = lambda records: done([False] * len(records))
    for _ in range(5):
        assert outcome(guard.save([sealed(1)])) == [False]
    stats = guard.stats()
    assert stats.writes is BreakerState.CLOSED and stats.saved_records == 0


def test_close_waits_for_what_was_asked(scripted: ScriptedTier) -> None:
    guard = GuardedTier("scripted", scripted, {0: LAYOUT}, POLICY)
    calls = [guard.save([sealed(number)]) for number in range(5)]
    assert guard.close() and scripted.closed.is_set() and len(scripted.shelf) == 5
    assert [outcome(call) for call in calls] == [[True]] * 5
    late = guard.load([blank(1)])
    assert outcome(late) == [False] and late.settled.done()
    assert guard.close()


def test_close_waits_for_calls_under_way(scripted: ScriptedTier) -> None:
    guard = GuardedTier("scripted", scripted, {0: LAYOUT}, POLICY)
    scripted.script["save"] = scripted.hang
    call = guard.save([sealed(1)])
    eventually(lambda: bool(scripted.open_calls))
    future, records = scripted.open_calls[0]
    closed_before: list[bool] = []

    def end() -> None:
        closed_before.append(scripted.closed.is_set())
        future.set_result([True] * len(records))

    timer = threading.Timer(0.1, end)
    timer.start()
    assert guard.close(WAIT_S) and closed_before == [False]
    assert outcome(call) == [True] and not call.timed_out
    timer.join()


def test_close_leaves_a_hanging_tier_behind(scripted: ScriptedTier) -> None:
    gate = threading.Event()
    guard = GuardedTier("scripted", scripted, {0: LAYOUT}, POLICY)
    scripted.script["load"] = scripted.hang
    scripted.script["close"] = lambda _: gate.wait(WAIT_S)
    call = guard.load([blank(1)])
    assert not guard.close(0.1)
    assert outcome(call) == [False] and call.holds_buffers
    gate.set()
    assert guard.close()
    scripted.open_calls[0][0].set_result([True])
    call.settled.result(WAIT_S)


def test_a_close_that_raises_is_logged(
    scripted: ScriptedTier, caplog: pytest.LogCaptureFixture
) -> None:
    guard = GuardedTier("scripted", scripted, {0: LAYOUT}, POLICY)
    scripted.script["close"] = raises(OSError("stuck"))
    assert guard.close()
    assert "KV offload tier scripted: close raised" in caplog.text
