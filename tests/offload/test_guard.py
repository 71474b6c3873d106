"""A guarded tier may fail, hang and lie; its callers see proven hits, misses and counters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from pegainfer_core.offload import BreakerState, GuardedTier, GuardPolicy

from .guard_bench import (
    LAYOUT,
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
from .scripted_tier import ScriptedTier, done, failed


def test_a_sound_tier_shows_through(guard: GuardedTier, scripted: ScriptedTier) -> None:
    assert outcome(guard.save([sealed(1), sealed(2)])) == [True, True]
    assert outcome(guard.contains([key(0), key(1)])) == [False, True]
    loaded = [blank(2), blank(3)]
    call = guard.load(loaded)
    assert outcome(call) == [True, False]
    assert loaded[0].buffer == sealed(2).buffer
    assert call.settled.done() and not call.holds_buffers and not call.timed_out
    assert outcome(guard.drop([key(1)])) == [True]
    assert outcome(guard.contains([key(1)])) == [False]
    guard.stats()
    eventually(lambda: guard.stats().tier.num_records == 1)
    stats = guard.stats()
    assert (stats.loaded_records, stats.saved_records) == (1, 2)
    assert (stats.loaded_bytes, stats.saved_bytes) == (8192, 16384)
    assert stats.load_s > 0 and stats.save_s > 0
    assert stats.reads is stats.writes is BreakerState.CLOSED
    assert (stats.num_failures, stats.num_timeouts, stats.num_corrupt, stats.last_error) == (
        *(0, 0, 0),
        "",
    )


def test_empty_calls_do_not_reach_the_tier(guard: GuardedTier, scripted: ScriptedTier) -> None:
    for call in (guard.contains([]), guard.save([]), guard.load([]), guard.drop([])):
        assert outcome(call) == [] and call.settled.done()
    assert scripted.calls == [] and guard.stats().num_skipped == 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:100] + b"\x99" + content[101:],
        lambda content: content[:5003] + b"\x99" + content[5004:],
        lambda content: bytes(len(content)),
        lambda content: bytes(sealed(9).buffer),
        lambda content: content[:4096] + bytes(len(content) - 4096),
    ],
    ids=["page", "trailer", "zeros", "another key's", "torn"],
)
def test_what_is_not_proven_is_a_miss(
    guard: GuardedTier, scripted: ScriptedTier, damage: Callable[[bytes], bytes]
) -> None:
    store(scripted, 1, 2)
    scripted.shelf[key(1)] = damage(scripted.shelf[key(1)])
    assert outcome(guard.load([blank(1), blank(2)])) == [False, True]
    eventually(lambda: key(1) not in scripted.shelf)
    assert key(2) in scripted.shelf
    stats = guard.stats()
    assert stats.num_corrupt == 1 and stats.num_failures == 0
    assert stats.last_error == "1 loaded records were damaged"


@pytest.mark.parametrize("what", ["contains", "save", "load", "drop"])
@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (raises(OSError("no disk")), "raised OSError: no disk"),
        (raises(SystemExit(3)), "raised SystemExit: 3"),
        (lambda _: failed(RuntimeError("no luck")), "raised RuntimeError: no luck"),
        (lambda _: failed(KeyboardInterrupt()), "raised KeyboardInterrupt"),
        (lambda _: [True, True], "raised TypeError: it returned a list, no Future"),
        (lambda _: None, "raised TypeError: it returned a NoneType, no Future"),
        (lambda _: done([True]), "of 2 answered [True]"),
        (lambda _: done([1, 1]), "of 2 answered [1, 1]"),
        (lambda _: done(None), "of 2 answered None"),
    ],
)
def test_failures_are_misses(
    guard: GuardedTier,
    scripted: ScriptedTier,
    what: str,
    answer: Callable[[Any], Any],
    problem: str,
) -> None:
    if what == "drop" and "answered" in problem:
        answer, problem = raises(ValueError("odd")), "raised ValueError: odd"
    store(scripted, 1, 2)
    scripted.script[what] = answer
    records = [sealed(1), sealed(2)] if what == "save" else [blank(1), blank(2)]
    argument: Any = records if what in ("save", "load") else [key(1), key(2)]
    call = getattr(guard, what)(argument)
    assert outcome(call) == [False, False] and call.settled.done()
    stats = guard.stats()
    assert stats.num_failures == 1 and stats.last_error.startswith(f"{what} {problem}")
    del scripted.script[what]
    assert outcome(getattr(guard, what)(argument)) == [True, True]


def test_a_call_that_the_tier_cancels_has_failed(
    guard: GuardedTier, scripted: ScriptedTier
) -> None:
    scripted.script["load"] = scripted.wait_in_line
    call = guard.load([blank(1)])
    eventually(lambda: bool(scripted.open_calls))
    scripted.open_calls[0][0].cancel()
    assert outcome(call) == [False] and guard.stats().num_failures == 1


@pytest.mark.parametrize("what", ["save", "load"])
def test_a_hanging_call_keeps_its_buffers(
    guard: GuardedTier, scripted: ScriptedTier, what: str
) -> None:
    store(scripted, 1)
    scripted.script[what] = scripted.hang
    record = sealed(1) if what == "save" else blank(1)
    call = getattr(guard, what)([record], SHORT_S)
    released = threading.Event()
    call.settled.add_done_callback(lambda _: released.set())
    assert outcome(call) == [False]
    assert call.timed_out and call.holds_buffers and call.records == [record]
    stats = guard.stats()
    assert (stats.num_timeouts, stats.num_held_calls, stats.held_bytes) == (1, 1, 8192)
    assert not released.is_set()
    future, records = scripted.open_calls.pop()
    future.set_result(scripted.fill(records))
    assert released.wait(WAIT_S) and not call.holds_buffers
    stats = guard.stats()
    assert (stats.num_held_calls, stats.held_bytes, stats.loaded_records) == (0, 0, 0)
    assert outcome(call) == [False], "a late answer must not change the outcome"


def test_a_call_that_had_not_begun_gives_its_buffers_back(
    guard: GuardedTier, scripted: ScriptedTier
) -> None:
    scripted.script["load"] = scripted.wait_in_line
    call = guard.load([blank(1)], SHORT_S)
    assert outcome(call) == [False] and call.timed_out
    assert call.settled.done() and guard.stats().num_held_calls == 0
    assert scripted.open_calls[0][0].cancelled()


def test_a_tier_that_blocks_in_its_call_blocks_nobody(
    guard: GuardedTier, scripted: ScriptedTier
) -> None:
    gate = threading.Event()

    def block(records: Any) -> Any:
        gate.wait(WAIT_S)
        return done(scripted.fill(records))

    store(scripted, 1)
    scripted.script["load"] = block
    stuck = guard.load([blank(1)], SHORT_S)
    behind = guard.contains([key(1)], 2 * SHORT_S)
    assert not stuck.outcome.done() and not behind.outcome.done()
    assert outcome(stuck) == [False] and stuck.holds_buffers
    assert outcome(behind) == [False] and behind.timed_out and behind.settled.done()
    gate.set()
    stuck.settled.result(WAIT_S)
    del scripted.script["load"]
    assert outcome(guard.load([blank(1)])) == [True]


def test_large_calls_have_more_time(guard: GuardedTier) -> None:
    assert GuardPolicy().deadline_s(10**9) == pytest.approx(12.0)


def test_calls_may_wait_for_those_before_them(scripted: ScriptedTier) -> None:
    policy = GuardPolicy(call_deadline_s=0.05, min_bytes_per_s=8192 / 0.2)
    guard = GuardedTier("slow", scripted, {0: LAYOUT}, policy)
    scripted.script["save"] = scripted.hang
    begun_s = time.monotonic()
    first, second = guard.save([sealed(1)]), guard.save([sealed(2)])
    assert outcome(first) == [False]
    assert time.monotonic() - begun_s >= 0.2
    assert outcome(second) == [False]
    assert time.monotonic() - begun_s >= 0.4
    for future, _ in scripted.open_calls:
        future.set_result([True])
    assert guard.close()


def test_a_cancelled_call_is_forgotten(guard: GuardedTier, scripted: ScriptedTier) -> None:
    scripted.script["load"] = scripted.wait_in_line
    for _ in range(4):
        call = guard.load([blank(1)])
        eventually(lambda: len(scripted.open_calls) == 1)
        eventually(call.cancel)
        assert outcome(call) == [False] and call.settled.done() and not call.timed_out
        assert not call.cancel()
        assert scripted.open_calls.pop()[0].cancelled()
    stats = guard.stats()
    assert (stats.num_failures, stats.num_timeouts, stats.num_opened) == (0, 0, 0)


def test_a_call_that_has_begun_is_not_cancelled(guard: GuardedTier, scripted: ScriptedTier) -> None:
    store(scripted, 1)
    scripted.script["load"] = scripted.hang
    call = guard.load([blank(1)])
    eventually(lambda: bool(scripted.open_calls))
    assert not call.cancel() and call.holds_buffers
    future, records = scripted.open_calls.pop()
    future.set_result(scripted.fill(records))
    assert outcome(call) == [True]


def test_stats_never_wait_for_the_tier(guard: GuardedTier, scripted: ScriptedTier) -> None:
    gate = threading.Event()
    scripted.script["stats"] = lambda _: gate.wait(WAIT_S)
    begun_s = time.monotonic()
    for _ in range(100):
        guard.stats()
    assert time.monotonic() - begun_s < WAIT_S / 2
    gate.set()
    scripted.script["stats"] = raises(ValueError("no numbers"))
    eventually(lambda: guard.stats().last_error == "stats raised ValueError: no numbers")
    assert guard.stats().num_failures == 0
