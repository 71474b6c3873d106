"""What is learnt of step times: soon, from few kinds of steps, and through noise."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pegainfer_core.engine import StepTimeModel, StepWork

Cost = Callable[[StepWork], float]


def linear_s(work: StepWork) -> float:
    """A device whose times are linear in what the model looks at."""
    return (
        3e-3
        + (1e-3 if work.num_prompts else 0)
        + (2e-3 if work.num_prompts and work.num_decode else 0)
        + 40e-6 * work.num_decode
        + 4e-9 * work.decode_context_tokens
        + 11e-6 * work.prefill_tokens
        + 2e-9 * work.prefill_pairs
    )


def mixed(num_decode: int, context_tokens: int, start: int, num_tokens: int) -> StepWork:
    return StepWork.decode(num_decode, context_tokens).beside([(start, num_tokens)])


def any_work(rng: random.Random) -> StepWork:
    kind = rng.randrange(3)
    rows = StepWork.decode(rng.randrange(1, 200), rng.randrange(16, 4000))
    chunk = [(rng.randrange(4000), rng.randrange(64, 2048))]
    return (rows, StepWork(0, 0).beside(chunk), rows.beside(chunk))[kind]


def taught(num_steps: int, cost: Cost, seed: int = 1) -> StepTimeModel:
    rng, model = random.Random(seed), StepTimeModel()
    for _ in range(num_steps):
        work = any_work(rng)
        model.observe(work, cost(work))
    return model


def test_nothing_is_expected_of_what_was_never_measured() -> None:
    model = StepTimeModel()
    work = StepWork.decode(4, 100)
    assert (model.expect_s(work), model.bound_s(work)) == (0, 0)
    model.observe(work, 0.0)
    assert model.expect_s(work) == 0
    model.observe(work, 3e-3)
    assert model.expect_s(work) == pytest.approx(3e-3)


def test_a_linear_device_is_learnt() -> None:
    model = taught(500, linear_s)
    rng = random.Random(2)
    for _ in range(100):
        work = any_work(rng)
        assert model.expect_s(work) == pytest.approx(linear_s(work), rel=0.05)
        assert model.expect_s(work) < model.bound_s(work) < 1.2 * linear_s(work)


def test_steps_like_the_last_ones_are_known_at_once() -> None:
    model = StepTimeModel()
    decode = [StepWork.decode(1, 1000)] * 3
    for work in (StepWork.prefill(0, 1000), *decode, mixed(1, 1000, 0, 500)):
        model.observe(work, linear_s(work))
    work = mixed(1, 1010, 500, 500)
    assert model.expect_s(work) == pytest.approx(linear_s(work), rel=0.2)


def test_noise_widens_the_bound_and_moves_no_mean() -> None:
    rng = random.Random(3)
    model = taught(2000, lambda work: linear_s(work) * rng.lognormvariate(0, 0.1))
    quiet = taught(2000, linear_s)
    works = [any_work(rng) for _ in range(100)]
    for work in works:
        assert model.expect_s(work) == pytest.approx(linear_s(work), rel=0.15)
    busy = [work for work in works if work.num_decode and work.num_prompts]
    for work in busy:
        assert model.bound_s(work) > 1.1 * quiet.bound_s(work)
    # The bound of steps with both kinds of rows is exceeded rarely.
    exceeded = sum(
        linear_s(work) * rng.lognormvariate(0, 0.1) > model.bound_s(work)
        for work in busy
        for _ in range(50)
    )
    assert exceeded < 0.06 * 50 * len(busy)


def test_hiccups_are_no_costs() -> None:
    rng = random.Random(4)
    model = taught(1000, lambda work: linear_s(work) * (20 if rng.random() < 0.02 else 1))
    for _ in range(100):
        work = any_work(rng)
        assert model.expect_s(work) == pytest.approx(linear_s(work), rel=0.15)


def test_a_long_time_without_prompts_wipes_out_nothing() -> None:
    model = taught(300, linear_s)
    for step in range(5_000):
        model.observe(StepWork.decode(8, 1000 + step), linear_s(StepWork.decode(8, 1000 + step)))
    work = mixed(8, 20_000, 0, 1024)
    assert model.expect_s(work) == pytest.approx(linear_s(work), rel=0.1)


def test_a_device_that_slows_down_is_noticed() -> None:
    model = taught(500, linear_s)
    rng = random.Random(5)
    for _ in range(1500):
        work = any_work(rng)
        model.observe(work, 1.5 * linear_s(work))
    work = mixed(32, 1000, 0, 1024)
    assert model.expect_s(work) == pytest.approx(1.5 * linear_s(work), rel=0.1)


def test_work_is_counted() -> None:
    work = mixed(2, 10, 4, 3)
    assert work == StepWork(2, 20, 1, 3, 5 + 6 + 7)
    assert (work.num_rows, work.num_tokens) == (3, 5)
    assert StepWork.prefill(4, 3) == StepWork(0, 0, 1, 3, 18)
