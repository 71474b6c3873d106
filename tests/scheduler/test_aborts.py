"""K07 and A08 on the scheduler: an abort is a normal event at any moment."""

from __future__ import annotations

import pytest

from pegainfer_core.contract import Finished, FinishReason, SamplingParams
from tests.scheduler.harness import PAGE_TOKENS, Harness

CHUNK = 8
PROMPT = [(11 * i) % 40 for i in range(8 * CHUNK)]
LONG = SamplingParams(max_tokens=30, ignore_eos=True)


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_abort_in_every_phase_beside_a_decoding_neighbour(prefix_cache: bool) -> None:
    harness = Harness(num_usable_pages=40, max_prefill_tokens=CHUNK, prefix_cache=prefix_cache)
    decoding: int | None = None
    for round_number in range(200):
        if decoding is None or harness.answers[decoding].terminal is not None:
            decoding = harness.submit([round_number % 40, 1, 2], params=LONG)
            harness.step()
        baseline = sum(len(sequence.page_ids) for sequence in harness.running)
        victim = harness.submit([round_number % 7, *PROMPT], params=LONG)
        for _ in range(round_number % 11):  # 0: still waiting; 9, 10: decoding
            harness.step()
        harness.abort(victim)
        harness.abort(victim)
        harness.abort(10**9)
        assert harness.answers[victim].reason is FinishReason.ABORT
        grown = sum(len(sequence.page_ids) for sequence in harness.running)
        assert harness.metrics.kv_used_pages == grown
        assert grown - baseline <= 4  # only the neighbour's own growth
        # Its pages go to someone else at once.
        third = harness.submit([40, round_number % 5, *PROMPT[:20]])
        harness.step()
        harness.step()
        harness.abort(third)
        harness.expect_right(third)
    harness.drain()
    for request_id in harness.requests:
        harness.expect_right(request_id)


def test_abort_in_the_step_of_anothers_finish() -> None:
    harness = Harness(num_usable_pages=40)
    one = SamplingParams(max_tokens=3, ignore_eos=True)
    first, second = harness.submit([1, 2, 3], params=one), harness.submit([4, 5, 6], params=LONG)
    while harness.answers[first].terminal is None:
        harness.step()
    harness.abort(second)
    harness.abort(first)
    assert harness.answers[first].reason is FinishReason.LENGTH
    assert harness.answers[second].reason is FinishReason.ABORT
    harness.drain(max_steps=1)
    harness.drain()


def test_a_storm_of_waiting_requests_is_never_computed() -> None:
    harness = Harness(num_usable_pages=40, max_num_seqs=1)
    first = harness.submit([1, 2, 3], params=LONG)
    harness.step()
    waiting = [harness.submit([7, *PROMPT], params=LONG) for _ in range(50)]
    assert harness.metrics.num_waiting == 50
    for request_id in waiting:
        harness.abort(request_id)
    assert harness.metrics.num_waiting == 0
    harness.drain()
    harness.expect_right(first)
    assert harness.model.num_tokens == 3 + 29
    assert all(harness.answers[request_id].cached_tokens is None for request_id in waiting)


def test_partly_filled_pages_of_an_aborted_prompt_are_not_published() -> None:
    harness = Harness(num_usable_pages=40, max_prefill_tokens=PAGE_TOKENS + 1)
    victim = harness.submit(PROMPT, params=LONG)
    harness.step()
    harness.abort(victim)
    # What a step still under way writes is nobody's.
    assert harness.metrics.kv_cached_pages == 1 - harness.lag
    assert harness.run(PROMPT).cached_tokens == PAGE_TOKENS * (1 - harness.lag)


def test_finished_counts_only_what_was_sent() -> None:
    harness = Harness()
    request_id = harness.submit([1, 2, 3], params=LONG)
    harness.steps(4 + harness.lag)
    harness.abort(request_id)
    answer = harness.answers[request_id]
    assert isinstance(answer.terminal, Finished)
    assert answer.terminal.completion_tokens == len(answer.token_ids) == 4
