"""The breaker's states, on a clock that the test sets."""

from __future__ import annotations

import pytest

from pegainfer_core.offload.breaker import Breaker, BreakerState


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(3, 5.0, 12.0, clock)


def break_it(breaker: Breaker) -> None:
    for _ in range(3):
        breaker.fail()


def test_a_run_of_failures_opens_it(breaker: Breaker) -> None:
    for _ in range(2):
        assert breaker.begin()
        breaker.fail()
    assert breaker.state is BreakerState.CLOSED
    breaker.fail()
    assert breaker.state is BreakerState.OPEN and breaker.num_opened == 1
    assert not breaker.begin() and not breaker.admits()


def test_success_forgets_failures(breaker: Breaker) -> None:
    for _ in range(5):
        breaker.fail()
        breaker.fail()
        breaker.succeed()
    assert breaker.state is BreakerState.CLOSED and breaker.num_opened == 0


def test_several_failures_may_come_at_once(breaker: Breaker) -> None:
    breaker.fail(7)
    assert breaker.state is BreakerState.OPEN


def test_one_probe_at_a_time_passes_after_the_cool_down(breaker: Breaker, clock: Clock) -> None:
    break_it(breaker)
    clock.now_s += 5.0
    assert breaker.state is BreakerState.HALF_OPEN and breaker.admits()
    assert breaker.begin() and not breaker.begin()
    breaker.withdraw()
    assert breaker.begin()
    breaker.succeed()
    assert breaker.state is BreakerState.CLOSED and breaker.begin() and breaker.begin()


def test_a_failed_probe_doubles_the_cool_down_up_to_a_limit(breaker: Breaker, clock: Clock) -> None:
    break_it(breaker)
    for cool_down_s in (5.0, 10.0, 12.0, 12.0):
        clock.now_s += cool_down_s - 0.01
        assert breaker.state is BreakerState.OPEN
        clock.now_s += 0.02
        assert breaker.begin()
        breaker.fail()
        assert breaker.state is BreakerState.OPEN
    assert breaker.num_opened == 5
    clock.now_s += 12.0
    assert breaker.begin()
    breaker.succeed()
    break_it(breaker)
    clock.now_s += 5.0
    assert breaker.state is BreakerState.HALF_OPEN


def test_late_failures_do_not_prolong_it(breaker: Breaker, clock: Clock) -> None:
    break_it(breaker)
    clock.now_s += 4.0
    breaker.fail()
    clock.now_s += 1.0
    assert breaker.state is BreakerState.HALF_OPEN and breaker.num_opened == 1
