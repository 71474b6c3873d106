"""The prefill budget of one step: spent in full, and nobody starves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegainfer_core.contract import GenerateRequest, SamplingParams
from pegainfer_core.engine import (
    Sequence,
    plan_chunks,
    prefill_budget,
    share_prefill_budget,
)
from pegainfer_core.engine.chunking import (
    FEW_PREFILL_TOKENS,
    MANY_TOKENS,
    MIXED_PREFILL_TOKENS,
    SCORED_PREFILL_TOKENS,
)
from pegainfer_core.kv import KvManager, PageError


def sequences(lengths: list[int], priorities: list[int] | None = None) -> list[Sequence]:
    result = []
    for serial, length in enumerate(lengths):
        priority = priorities[serial] if priorities else 0
        request = GenerateRequest(
            request_id=serial, prompt_token_ids=[1] * length, priority=priority
        )
        result.append(Sequence(request, max_tokens=4, serial=serial))
    return sorted(result, key=lambda sequence: sequence.rank)


def shares(lengths: list[int], budget: int, priorities: list[int] | None = None) -> list[int]:
    return share_prefill_budget(sequences(lengths, priorities), budget)


@pytest.mark.parametrize(
    ("lengths", "budget", "expected"),
    [
        ([], 8, []),
        ([3], 8, [3]),
        ([30], 8, [8]),
        ([30, 3], 8, [5, 3]),  # the short one ends now
        ([30, 20, 3], 8, [4, 1, 3]),
        ([3, 30], 8, [3, 5]),
        ([30, 30], 8, [8, 0]),  # equal ones one after the other
        ([30, 6], 8, [4, 4]),
        ([1, 1, 1, 1], 3, [1, 1, 1, 0]),
        ([30, 3], 1, [1, 0]),
    ],
)
def test_shares(lengths: list[int], budget: int, expected: list[int]) -> None:
    assert shares(lengths, budget) == expected


def test_a_short_prompt_of_worse_priority_waits_for_the_better_one() -> None:
    # In order of rank: the long one of priority -1 first.
    assert shares([3, 30], 8, priorities=[0, -1]) == [8, 0]
    assert shares([3, 6], 8, priorities=[0, -1]) == [6, 2]


@given(st.lists(st.integers(1, 50), max_size=12), st.integers(1, 40))
def test_the_budget_is_spent_and_the_first_gets_half(lengths: list[int], budget: int) -> None:
    result = shares(lengths, budget)
    assert sum(result) == min(budget, sum(lengths))
    assert all(0 <= share <= length for share, length in zip(result, lengths, strict=True))
    if lengths:
        assert result[0] >= min(lengths[0], -(-budget // 2))


def test_few_tokens_of_a_step_are_scored() -> None:
    """Scoring is the host's work: a step with thousands of them would look like a hung engine."""
    most, scored = SCORED_PREFILL_TOKENS, SamplingParams(prompt_logprobs=0)

    def prompts(*lengths: tuple[int, SamplingParams]) -> list[Sequence]:
        return [
            Sequence(
                GenerateRequest(request_id=i, prompt_token_ids=[1] * length, params=params),
                max_tokens=4,
                serial=i,
            )
            for i, (length, params) in enumerate(lengths)
        ]

    plain = SamplingParams()
    assert share_prefill_budget(prompts((5000, scored)), 4096) == [most]
    assert share_prefill_budget(prompts((5000, scored), (6, scored)), 4096) == [most, 0]
    assert share_prefill_budget(prompts((6, scored), (5000, scored)), 4096) == [6, most - 6]
    mixed = prompts((5000, scored), (5000, plain))
    assert share_prefill_budget(mixed, 4096) == [most, 4096 - most]
    mixed[0].prompt_logprobs = None  # sent: what a preemption took is computed at full speed
    assert share_prefill_budget(mixed, 4096) == [4096, 0]


def test_rows_have_pages_and_only_the_last_chunk_samples() -> None:
    kv = KvManager(10, 4)
    long, short = sequences([10, 3])
    for sequence in (long, short):
        num_tokens = len(sequence.token_ids)
        assert kv.admit(sequence, reserve_tokens=num_tokens, room_tokens=num_tokens)
    rows = plan_chunks([long, short], 8, kv)
    assert [(row.start, row.num_tokens, row.samples) for row in rows] == [
        (0, 5, False),
        (0, 3, True),
    ]
    assert (len(long.page_ids), len(short.page_ids)) == (2, 1)
    long.num_computed = 5
    [row] = plan_chunks([long], 8, kv)
    assert (row.start, row.num_tokens, row.samples) == (5, 5, True)
    assert len(long.page_ids) == 3


def test_a_prompt_without_output_never_samples() -> None:
    kv = KvManager(10, 4)
    [sequence] = sequences([5])
    sequence.max_tokens = 0
    assert kv.admit(sequence, reserve_tokens=5, room_tokens=5)
    [row] = plan_chunks([sequence], 8, kv)
    assert not row.samples


def test_a_chunk_without_reservation_is_a_clear_error() -> None:
    kv = KvManager(2, 4)
    [sequence] = sequences([8])
    with pytest.raises(PageError, match="no page for a chunk of request 0"):
        plan_chunks([sequence], 8, kv)


@pytest.mark.parametrize(
    ("backlog", "num_decode", "expected"),
    [
        ([], 4, MIXED_PREFILL_TOKENS),
        ([1024], 4, MIXED_PREFILL_TOKENS),
        ([MANY_TOKENS], 4, MIXED_PREFILL_TOKENS),
        ([MANY_TOKENS // 4 - 1] * 4, 4, MIXED_PREFILL_TOKENS),
        ([MANY_TOKENS // 4] * 4, 4, 8192),
        ([16384], 0, FEW_PREFILL_TOKENS),
        ([16384, 1024, 1024], 0, FEW_PREFILL_TOKENS),
        ([MANY_TOKENS // 4] * 4, 0, 8192),
    ],
)
def test_decoding_rows_bound_the_budget_until_many_prompts_wait(
    backlog: list[int], num_decode: int, expected: int
) -> None:
    waiting = sequences(backlog)
    assert prefill_budget(waiting, 8192, num_decode) == expected
    assert prefill_budget(waiting, 16, num_decode) == 16
