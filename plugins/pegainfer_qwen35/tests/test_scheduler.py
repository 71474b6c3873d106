"""The scheduler and its snapshots: right states under any history, also when steps run ahead."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, run_state_machine_as_test

from pegainfer_core.contract import SamplingParams
from pegainfer_core.kv import BlockHasher
from plugins.pegainfer_qwen35.tests.harness import AheadHarness, StatefulHarness
from tests.scheduler.harness import PAGE_TOKENS
from tests.scheduler.test_any_history import AnyHistory

LONG = SamplingParams(max_tokens=30, ignore_eos=True)
ONE = SamplingParams(max_tokens=1)


def prompt(num_tokens: int, first: int = 0) -> list[int]:
    return [first] + [(3 * i) % 40 for i in range(1, num_tokens)]


@pytest.fixture(params=[StatefulHarness, AheadHarness])
def harness_type(request: pytest.FixtureRequest) -> type[StatefulHarness]:
    found: type[StatefulHarness] = request.param
    return found


def test_a_repeated_prompt_restores_the_last_border(harness_type: type[StatefulHarness]) -> None:
    harness = harness_type(max_prefill_tokens=5)
    for length in (1, 4, 5, 8, 9, 23):
        harness.run(prompt(length, first=length), params=ONE)
        warm = harness.run(prompt(length, first=length), params=ONE)
        assert warm.cached_tokens == (length - 1) // PAGE_TOKENS * PAGE_TOKENS


def test_the_next_turn_restores_the_answer_s_last_border(
    harness_type: type[StatefulHarness],
) -> None:
    harness = harness_type(num_usable_pages=40)
    first = harness.run(prompt(10), params=LONG)
    turn = harness.run([*prompt(10), *first.token_ids, 1, 2], params=LONG)
    assert turn.cached_tokens == (10 + 29) // PAGE_TOKENS * PAGE_TOKENS
    third = harness.run([*prompt(10), *first.token_ids, 1, 2, *turn.token_ids, 3], params=ONE)
    assert third.cached_tokens == (10 + 30 + 2 + 29) // PAGE_TOKENS * PAGE_TOKENS


def test_a_token_beyond_the_end_is_never_kept(harness_type: type[StatefulHarness]) -> None:
    """A step that was launched before the end was read may reach a border; its state is dropped."""
    harness = harness_type(num_usable_pages=40)
    for max_tokens in range(1, 10):
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        first = harness.run(prompt(6, first=max_tokens), params=params)
        turn = [*prompt(6, first=max_tokens), *first.token_ids, 5]
        known = 6 + max_tokens - 1
        expected = max(known // PAGE_TOKENS * PAGE_TOKENS, PAGE_TOKENS)
        assert harness.run(turn, params=ONE).cached_tokens == expected


def test_a_prompt_leaves_a_state_where_it_leaves_a_known_path(
    harness_type: type[StatefulHarness],
) -> None:
    harness = harness_type(num_usable_pages=40)
    tails = ([41, 42, 43, 44, 45], [42] * 5, [43] * 5)
    hits = [harness.run(prompt(18) + tail, params=ONE).cached_tokens for tail in tails]
    assert hits == [0, 0, 16]


def test_prompts_that_come_at_once_share_what_the_first_computes(
    harness_type: type[StatefulHarness],
) -> None:
    """All are admitted before any of it is there; but the two that the first step begins."""
    harness = harness_type(num_usable_pages=80, max_num_seqs=6, max_prefill_tokens=8)
    tails = [[41 + i, 1, 2, 3] for i in range(6)]
    requests = [harness.submit(prompt(20) + tail, params=ONE) for tail in tails]
    harness.drain()
    for request_id in requests:
        harness.expect_right(request_id)
    hits = [harness.answers[request_id].cached_tokens for request_id in requests]
    assert sorted(hits)[2:] == [20] * 4
    assert harness.states.num_tokens < 6 * 24 - 4 * 16


def test_late_matches_keep_reservations(harness_type: type[StatefulHarness]) -> None:
    """In a pool so full that nobody else could start, nothing is lost by looking again."""
    harness = harness_type(num_usable_pages=24, max_prefill_tokens=4, headroom_tokens=0)
    requests = [harness.submit([*prompt(20), 41 + i], params=ONE) for i in range(4)]
    harness.drain()
    for request_id in requests:
        harness.expect_right(request_id)


def test_a_restored_state_is_not_written_over_in_the_same_step() -> None:
    harness = StatefulHarness(num_snapshots=1, num_usable_pages=40)
    harness.run(prompt(9), params=ONE)
    again, other = harness.submit(prompt(9), params=ONE), harness.submit(prompt(9, 1), params=ONE)
    harness.drain()
    assert harness.answers[again].cached_tokens == 8
    for request_id in (again, other):
        harness.expect_right(request_id)
    pool = harness.kv.snapshots.pools[0]
    assert pool.num_skipped >= 1


def test_preempted_sequences_come_back_to_a_state_of_theirs() -> None:
    harness = AheadHarness(num_usable_pages=12, headroom_tokens=0)
    requests = [harness.submit(prompt(9, first=i), params=LONG) for i in range(3)]
    harness.drain()
    for request_id in requests:
        harness.expect_right(request_id)
    assert harness.metrics.num_preemptions > 0


class AnyStatefulHistory(AnyHistory):
    """Submissions, steps, aborts and cache resets in any order, with few or many snapshots."""

    @initialize(
        ahead=st.booleans(),
        num_snapshots=st.sampled_from([0, 1, 2, 5, 40]),
        num_usable_pages=st.integers(3, 40),
        max_num_seqs=st.integers(1, 6),
        max_prefill_tokens=st.sampled_from([1, 3, 8, 64]),
        prefix_cache=st.sampled_from([True, True, True, True, False]),
        reserve=st.sampled_from(["on-demand", "on-demand", "worst-case"]),
        headroom_tokens=st.sampled_from([0, 0, 8, 512]),
        constant_hash=st.sampled_from([False, False, False, True]),
    )
    def start(self, ahead: bool, constant_hash: bool, **options: object) -> None:  # type: ignore[override]
        hasher = BlockHasher(lambda data: b"same") if constant_hash else None
        options["max_model_len"] = 96
        made = AheadHarness if ahead else StatefulHarness
        self.harness = made(hasher=hasher, **options)  # type: ignore[arg-type]
        self.worst_case = options["reserve"] == "worst-case"


def test_any_history() -> None:
    run_state_machine_as_test(
        AnyStatefulHistory,
        settings=settings(
            max_examples=18,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
