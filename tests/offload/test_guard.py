"""A guarded tier may fail, hang and lie; its callers see proven hits, misses and counters."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pegainfer_core.kv import PageKey, TierRecord
from pegainfer_core.offload import BreakerState, GuardedTier, GuardPolicy, RecordLayout, TierCall

from .scripted_tier import ScriptedTier, done, failed

LAYOUT = RecordLayout(page_bytes=5000)
POLICY = GuardPolicy(call_deadline_s=20.0, max_failures=3, cool_down_s=60.0)
BRISK = GuardPolicy(call_deadline_s=20.0, max_failures=3, cool_down_s=0.02)
SHORT_S = 0.05
WAIT_S = 20.0


@pytest.fixture
def tier() -> ScriptedTier:
    return ScriptedTier()


@pytest.fixture
def guard(tier: ScriptedTier) -> Iterator[GuardedTier]:
    made = GuardedTier("scripted", tier, {0: LAYOUT}, POLICY)
    yield made
    assert made.close(WAIT_S)


@pytest.fixture
def brisk(tier: ScriptedTier) -> Iterator[GuardedTier]:
    """A guard that forgives soon."""
    made = GuardedTier("scripted", tier, {0: LAYOUT}, BRISK)
    yield made
    assert made.close(WAIT_S)


def key(number: int) -> PageKey:
    return PageKey(hashlib.sha256(bytes([number])).digest())


def blank(number: int) -> TierRecord:
    return TierRecord(key(number), memoryview(bytearray(LAYOUT.record_bytes)))


def sealed(number: int) -> TierRecord:
    record = blank(number)
    record.buffer[:5000] = bytes([number]) * 5000
    LAYOUT.seal(record.key, record.buffer)
    return record


def outcome(call: TierCall[list[bool]]) -> list[bool]:
    return call.outcome.result(WAIT_S)


def eventually(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def store(tier: ScriptedTier, *numbers: int) -> None:
    for number in numbers:
        tier.shelf[key(number)] = bytes(sealed(number).buffer)


def test_a_sound_tier_shows_through(guard: GuardedTier, tier: ScriptedTier) -> None:
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


def test_empty_calls_do_not_reach_the_tier(guard: GuardedTier, tier: ScriptedTier) -> None:
    for call in (guard.contains([]), guard.save([]), guard.load([]), guard.drop([])):
        assert outcome(call) == [] and call.settled.done()
    assert tier.calls == [] and guard.stats().num_skipped == 0


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
    guard: GuardedTier, tier: ScriptedTier, damage: Callable[[bytes], bytes]
) -> None:
    store(tier, 1, 2)
    tier.shelf[key(1)] = damage(tier.shelf[key(1)])
    assert outcome(guard.load([blank(1), blank(2)])) == [False, True]
    eventually(lambda: key(1) not in tier.shelf)
    assert key(2) in tier.shelf
    stats = guard.stats()
    assert stats.num_corrupt == 1 and stats.num_failures == 0
    assert stats.last_error == "1 loaded records were damaged"


def raises(error: BaseException) -> Callable[[Any], Any]:
    def call(_: Any) -> Any:
        raise error

    return call


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
    tier: ScriptedTier,
    what: str,
    answer: Callable[[Any], Any],
    problem: str,
) -> None:
    if what == "drop" and "answered" in problem:
        answer, problem = raises(ValueError("odd")), "raised ValueError: odd"
    store(tier, 1, 2)
    tier.script[what] = answer
    records = [sealed(1), sealed(2)] if what == "save" else [blank(1), blank(2)]
    argument: Any = records if what in ("save", "load") else [key(1), key(2)]
    call = getattr(guard, what)(argument)
    assert outcome(call) == [False, False] and call.settled.done()
    stats = guard.stats()
    assert stats.num_failures == 1 and stats.last_error.startswith(f"{what} {problem}")
    del tier.script[what]
    assert outcome(getattr(guard, what)(argument)) == [True, True]


def test_a_call_that_the_tier_cancels_has_failed(guard: GuardedTier, tier: ScriptedTier) -> None:
    tier.script["load"] = tier.wait_in_line
    call = guard.load([blank(1)])
    eventually(lambda: bool(tier.open_calls))
    tier.open_calls[0][0].cancel()
    assert outcome(call) == [False] and guard.stats().num_failures == 1


@pytest.mark.parametrize("what", ["save", "load"])
def test_a_hanging_call_keeps_its_buffers(
    guard: GuardedTier, tier: ScriptedTier, what: str
) -> None:
    store(tier, 1)
    tier.script[what] = tier.hang
    record = sealed(1) if what == "save" else blank(1)
    call = getattr(guard, what)([record], SHORT_S)
    released = threading.Event()
    call.settled.add_done_callback(lambda _: released.set())
    assert outcome(call) == [False]
    assert call.timed_out and call.holds_buffers and call.records == [record]
    stats = guard.stats()
    assert (stats.num_timeouts, stats.num_held_calls, stats.held_bytes) == (1, 1, 8192)
    assert not released.is_set()
    future, records = tier.open_calls.pop()
    future.set_result(tier.fill(records))
    assert released.wait(WAIT_S) and not call.holds_buffers
    stats = guard.stats()
    assert (stats.num_held_calls, stats.held_bytes, stats.loaded_records) == (0, 0, 0)
    assert outcome(call) == [False], "a late answer must not change the outcome"


def test_a_call_that_had_not_begun_gives_its_buffers_back(
    guard: GuardedTier, tier: ScriptedTier
) -> None:
    tier.script["load"] = tier.wait_in_line
    call = guard.load([blank(1)], SHORT_S)
    assert outcome(call) == [False] and call.timed_out
    assert call.settled.done() and guard.stats().num_held_calls == 0
    assert tier.open_calls[0][0].cancelled()


def test_a_tier_that_blocks_in_its_call_blocks_nobody(
    guard: GuardedTier, tier: ScriptedTier
) -> None:
    gate = threading.Event()

    def block(records: Any) -> Any:
        gate.wait(WAIT_S)
        return done(tier.fill(records))

    store(tier, 1)
    tier.script["load"] = block
    stuck = guard.load([blank(1)], SHORT_S)
    behind = guard.contains([key(1)], 2 * SHORT_S)
    assert not stuck.outcome.done() and not behind.outcome.done()
    assert outcome(stuck) == [False] and stuck.holds_buffers
    assert outcome(behind) == [False] and behind.timed_out and behind.settled.done()
    gate.set()
    stuck.settled.result(WAIT_S)
    del tier.script["load"]
    assert outcome(guard.load([blank(1)])) == [True]


def test_large_calls_have_more_time(guard: GuardedTier) -> None:
    assert GuardPolicy().deadline_s(10**9) == pytest.approx(12.0)


def test_calls_may_wait_for_those_before_them(tier: ScriptedTier) -> None:
    policy = GuardPolicy(call_deadline_s=0.05, min_bytes_per_s=8192 / 0.2)
    guard = GuardedTier("slow", tier, {0: LAYOUT}, policy)
    tier.script["save"] = tier.hang
    begun_s = time.monotonic()
    first, second = guard.save([sealed(1)]), guard.save([sealed(2)])
    assert outcome(first) == [False]
    assert time.monotonic() - begun_s >= 0.2
    assert outcome(second) == [False]
    assert time.monotonic() - begun_s >= 0.4
    for future, _ in tier.open_calls:
        future.set_result([True])
    assert guard.close()


def fail_loads(guard: GuardedTier, tier: ScriptedTier, count: int = 3) -> None:
    tier.script["load"] = raises(OSError("no disk"))
    for _ in range(count):
        outcome(guard.load([blank(1)]))


def test_the_breaker_cuts_a_failing_tier_off(guard: GuardedTier, tier: ScriptedTier) -> None:
    store(tier, 1)
    fail_loads(guard, tier)
    num_calls = len(tier.calls)
    stats = guard.stats()
    assert (stats.reads, stats.writes) == (BreakerState.OPEN, BreakerState.CLOSED)
    assert stats.num_opened == 1
    for call in (guard.contains([key(1)]), guard.load([blank(1)]), guard.save([sealed(2)])):
        assert outcome(call) == [False] and call.settled.done()
    assert len(tier.calls) == num_calls and guard.stats().num_skipped == 3


def test_the_breaker_closes_when_a_load_works(brisk: GuardedTier, tier: ScriptedTier) -> None:
    store(tier, 1)
    fail_loads(brisk, tier)
    del tier.script["load"]
    eventually(lambda: brisk.stats().reads is BreakerState.HALF_OPEN)
    assert outcome(brisk.contains([key(1)])) == [True]
    assert brisk.stats().reads is BreakerState.HALF_OPEN, "a look-up proves nothing"
    assert outcome(brisk.load([blank(1)])) == [True]
    assert brisk.stats().reads is BreakerState.CLOSED


def test_look_ups_that_work_do_not_excuse_loads(guard: GuardedTier, tier: ScriptedTier) -> None:
    store(tier, 1)
    tier.script["load"] = raises(OSError("no disk"))
    for _ in range(3):
        assert outcome(guard.contains([key(1)])) == [True]
        assert outcome(guard.save([sealed(1)])) == [True]
        assert outcome(guard.load([blank(1)])) == [False]
    assert guard.stats().reads is BreakerState.OPEN


def test_a_lying_tier_is_cut_off(guard: GuardedTier, tier: ScriptedTier) -> None:
    for number in range(3):
        tier.shelf[key(number)] = bytes(LAYOUT.record_bytes)
    assert outcome(guard.load([blank(n) for n in range(3)])) == [False] * 3
    stats = guard.stats()
    assert stats.reads is BreakerState.OPEN and stats.num_corrupt == 3


def test_a_hanging_tier_is_not_probed_while_it_holds_buffers(
    brisk: GuardedTier, tier: ScriptedTier
) -> None:
    store(tier, 1)
    tier.script["load"] = tier.hang
    for call in [brisk.load([blank(1)], SHORT_S) for _ in range(3)]:
        assert outcome(call) == [False]
    eventually(lambda: brisk.stats().reads is BreakerState.HALF_OPEN)
    num_calls = len(tier.calls)
    assert outcome(brisk.load([blank(1)])) == outcome(brisk.contains([key(1)])) == [False]
    assert len(tier.calls) == num_calls and brisk.stats().num_held_calls == 3
    del tier.script["load"]
    while tier.open_calls:
        tier.open_calls.pop()[0].set_result([False])
    assert outcome(brisk.load([blank(1)])) == [True]
    assert brisk.stats().reads is BreakerState.CLOSED


def test_no_room_is_no_failure(guard: GuardedTier, tier: ScriptedTier) -> None:
    tier.script["save"] = lambda records: done([False] * len(records))
    for _ in range(5):
        assert outcome(guard.save([sealed(1)])) == [False]
    stats = guard.stats()
    assert stats.writes is BreakerState.CLOSED and stats.saved_records == 0


def test_a_cancelled_call_is_forgotten(guard: GuardedTier, tier: ScriptedTier) -> None:
    tier.script["load"] = tier.wait_in_line
    for _ in range(4):
        call = guard.load([blank(1)])
        eventually(lambda: len(tier.open_calls) == 1)
        eventually(call.cancel)
        assert outcome(call) == [False] and call.settled.done() and not call.timed_out
        assert not call.cancel()
        assert tier.open_calls.pop()[0].cancelled()
    stats = guard.stats()
    assert (stats.num_failures, stats.num_timeouts, stats.num_opened) == (0, 0, 0)


def test_a_call_that_has_begun_is_not_cancelled(guard: GuardedTier, tier: ScriptedTier) -> None:
    store(tier, 1)
    tier.script["load"] = tier.hang
    call = guard.load([blank(1)])
    eventually(lambda: bool(tier.open_calls))
    assert not call.cancel() and call.holds_buffers
    future, records = tier.open_calls.pop()
    future.set_result(tier.fill(records))
    assert outcome(call) == [True]


def test_stats_never_wait_for_the_tier(guard: GuardedTier, tier: ScriptedTier) -> None:
    gate = threading.Event()
    tier.script["stats"] = lambda _: gate.wait(WAIT_S)
    begun_s = time.monotonic()
    for _ in range(100):
        guard.stats()
    assert time.monotonic() - begun_s < 1.0
    gate.set()
    tier.script["stats"] = raises(ValueError("no numbers"))
    eventually(lambda: guard.stats().last_error == "stats raised ValueError: no numbers")
    assert guard.stats().num_failures == 0


def test_close_waits_for_what_was_asked(tier: ScriptedTier) -> None:
    guard = GuardedTier("scripted", tier, {0: LAYOUT}, POLICY)
    calls = [guard.save([sealed(number)]) for number in range(5)]
    assert guard.close() and tier.closed.is_set() and len(tier.shelf) == 5
    assert [outcome(call) for call in calls] == [[True]] * 5
    late = guard.load([blank(1)])
    assert outcome(late) == [False] and late.settled.done()
    assert guard.close()


def test_close_leaves_a_hanging_tier_behind(tier: ScriptedTier) -> None:
    gate = threading.Event()
    guard = GuardedTier("scripted", tier, {0: LAYOUT}, POLICY)
    tier.script["load"] = tier.hang
    tier.script["close"] = lambda _: gate.wait(WAIT_S)
    call = guard.load([blank(1)])
    assert not guard.close(0.1)
    assert outcome(call) == [False] and call.holds_buffers
    gate.set()
    assert guard.close()
    tier.open_calls[0][0].set_result([True])
    call.settled.result(WAIT_S)


def test_a_close_that_raises_is_logged(
    tier: ScriptedTier, caplog: pytest.LogCaptureFixture
) -> None:
    guard = GuardedTier("scripted", tier, {0: LAYOUT}, POLICY)
    tier.script["close"] = raises(OSError("stuck"))
    assert guard.close()
    assert "KV offload tier scripted: close raised" in caplog.text
