"""Prefill budgets by a latency target: within it, never nothing, and learnt from few steps."""

from __future__ import annotations

import random
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegainfer_core.contract import GenerateRequest, ServePlan
from pegainfer_core.engine import (
    FixedPrefillBudget,
    Row,
    Sequence,
    StepPlan,
    StepWork,
    TargetedPrefillBudget,
    make_prefill_budget,
    prefill_budget,
    share_prefill_budget,
)

LIMIT = 8192
GRAIN = LIMIT // 64


def sequence(serial: int, num_tokens: int, num_computed: int = 0) -> Sequence:
    request = GenerateRequest(request_id=serial, prompt_token_ids=[1] * num_tokens)
    return Sequence(request, max_tokens=4, serial=serial, num_computed=num_computed)


def decode_rows(count: int, context_tokens: int) -> list[Row]:
    return [Row(sequence(i, 1), context_tokens - 1, 1, True) for i in range(count)]


def step_s(work: StepWork) -> float:
    """A device: 3 ms, 2 more with both kinds of rows, 11 us a token, 2 ns a pair."""
    both = bool(work.num_decode and work.num_prompts)
    return (
        3e-3
        + 2e-3 * both
        + 4e-9 * work.decode_context_tokens
        + 11e-6 * work.prefill_tokens
        + 2e-9 * work.prefill_pairs
    )


class Served:
    """Steps of one budget on that device."""

    def __init__(self, target_s: float, noise: float = 0.0) -> None:
        self.budget = TargetedPrefillBudget(LIMIT, target_s)
        self.rng = random.Random(1)
        self.noise = noise

    def step(self, prompts: list[Sequence], rows: list[Row]) -> tuple[StepWork, float]:
        budget_tokens = self.budget.tokens(prompts, rows) if prompts else 0
        assert not prompts or 1 <= budget_tokens <= LIMIT
        shares = share_prefill_budget(prompts, budget_tokens) if prompts else []
        chunks = [
            Row(seq, seq.num_computed, share, False)
            for seq, share in zip(prompts, shares, strict=True)
            if share
        ]
        plan = StepPlan(rows + chunks, len(rows))
        work = StepWork.of(plan)
        duration_s = step_s(work) * self.rng.lognormvariate(0, self.noise)
        self.budget.observe(plan, duration_s)
        for row in chunks:
            row.sequence.num_computed += row.num_tokens
        return work, duration_s


def test_the_plan_says_which_budget() -> None:
    plan = ServePlan(
        max_model_len=100,
        vocab_size=50,
        backend="numpy",
        page_tokens=16,
        num_pages=10,
        max_num_seqs=4,
        max_prefill_tokens=64,
    )
    fixed = make_prefill_budget(plan)
    assert isinstance(fixed, FixedPrefillBudget)
    waiting = [sequence(0, 5000)]
    for rows in ([], decode_rows(3, 10)):
        assert fixed.tokens(waiting, rows) == prefill_budget(waiting, 64, len(rows)) == 64
    fixed.observe(StepPlan(rows, 3), 1.0)
    targeted = make_prefill_budget(msgspec.structs.replace(plan, itl_target_s=0.02))
    assert isinstance(targeted, TargetedPrefillBudget)


def test_without_decoding_rows_nobody_waits() -> None:
    budget = TargetedPrefillBudget(LIMIT, 1e-9)
    for waiting in ([sequence(0, 9000)], [sequence(0, 9000), sequence(1, 9000)]):
        assert budget.tokens(waiting, []) == prefill_budget(waiting, LIMIT, 0)


@pytest.mark.parametrize("target_s", [0.008, 0.02, 0.05])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_gaps_stay_below_the_target_and_close_to_it(target_s: float, noise: float) -> None:
    served = Served(target_s, noise)
    rows = decode_rows(16, 1000)
    long = 0
    late: list[float] = []
    for step in range(600):
        if step % 2:
            served.step([], rows)
            continue
        _, duration_s = served.step([sequence(step + i, 6000) for i in range(3)], rows)
        long += duration_s > target_s
        late.append(duration_s)
    assert long <= 0.03 * 300  # of all 600 gaps: 1.5 %
    settled = late[50:]
    assert sum(settled) / len(settled) > 0.75 * target_s


def test_prompts_move_on_where_decoding_alone_takes_too_long() -> None:
    served = Served(1e-3)
    served.step([sequence(0, 100)], decode_rows(8, 1000))
    prompt = sequence(1, 3000)
    while prompt.num_computed < 3000:
        left = 3000 - prompt.num_computed
        work, _ = served.step([prompt], decode_rows(8, 1000))
        assert work.prefill_tokens == min(GRAIN, left)


def test_a_small_limit_has_a_floor_of_one_token() -> None:
    budget = TargetedPrefillBudget(3, 1e-9)
    budget.observe(StepPlan(decode_rows(2, 10), 2), 1.0)
    assert budget.tokens([sequence(0, 10)], decode_rows(2, 10)) == 1


def test_what_was_never_measured_is_approached_in_strides() -> None:
    served = Served(1.0)
    sizes = [
        served.step([sequence(0, 30_000)], decode_rows(4, 100))[0].prefill_tokens for _ in range(12)
    ]
    assert sizes[0] <= LIMIT // 8
    assert all(after <= 1.5 * before for before, after in pairwise(sizes))
    assert sizes[-1] == LIMIT


def test_a_long_context_gets_smaller_chunks() -> None:
    served = Served(0.02)
    rows = decode_rows(16, 1000)
    for i in range(100):
        start = 300 * i
        served.step([sequence(i, start + 4000, num_computed=start)], rows)
    near, far = (
        served.budget.tokens([sequence(0, start + 8000, num_computed=start)], rows)
        for start in (0, 30_000)
    )
    assert near >= 1.5 * far


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 10_000),
    st.floats(1e-4, 1.0),
    st.lists(
        st.tuples(
            st.lists(st.integers(1, 9000), max_size=5),
            st.integers(0, 9),
            st.floats(0.0, 10.0),
        ),
        max_size=20,
    ),
)
def test_any_times_leave_a_budget_within_its_limits(
    limit: int, target_s: float, steps: list[tuple[list[int], int, float]]
) -> None:
    budget = TargetedPrefillBudget(limit, target_s)
    for lengths, num_decode, duration_s in steps:
        prompts = [sequence(i, length) for i, length in enumerate(lengths)]
        rows = decode_rows(num_decode, 100)
        tokens = budget.tokens(prompts, rows)
        assert 1 <= tokens <= limit
        chunks = [
            Row(seq, 0, share, False)
            for seq, share in zip(prompts, share_prefill_budget(prompts, tokens), strict=True)
            if share
        ]
        if rows or chunks:
            budget.observe(StepPlan(rows + chunks, num_decode), duration_s)
