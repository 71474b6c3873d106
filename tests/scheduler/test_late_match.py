"""Requests that come at once with one prefix: who waits for a turn takes over what is there."""

from __future__ import annotations

import pytest

from pegainfer_core.contract import SamplingParams
from tests.scheduler.harness import PAGE_TOKENS, Harness

SHARED = [(7 * i) % 40 for i in range(6 * PAGE_TOKENS)]
PARAMS = SamplingParams(max_tokens=4, ignore_eos=True)
NUM_MATES = 3


class AheadHarness(Harness):
    """Reads a step's results after the launch of the next one."""

    ahead = True


@pytest.mark.parametrize("harness_type", [Harness, AheadHarness])
def test_a_prefix_is_computed_once_for_all_that_came_together(harness_type: type[Harness]) -> None:
    harness = harness_type(num_usable_pages=60, max_prefill_tokens=len(SHARED) // 2)
    asked = [harness.submit([*SHARED, 41, 42 + i], params=PARAMS) for i in range(1 + NUM_MATES)]
    harness.drain()
    cached = [harness.answers[request_id].cached_tokens for request_id in asked]
    # Those whose first chunk was due beside the first one's last find what was published by then.
    assert cached[0] == 0 and sum(tokens or 0 for tokens in cached) >= len(SHARED)
    assert cached[-1] == len(SHARED)
    for request_id in asked:
        harness.expect_right(request_id)


def test_prompts_to_be_scored_are_computed_in_full() -> None:
    harness = Harness(num_usable_pages=60, max_prefill_tokens=len(SHARED) // 2)
    scored = SamplingParams(max_tokens=4, ignore_eos=True, prompt_logprobs=0)
    first = harness.submit([*SHARED, 41], params=PARAMS)
    second = harness.submit([*SHARED, 42], params=scored)
    harness.drain()
    assert harness.answers[second].cached_tokens == 0
    for request_id in (first, second):
        harness.expect_right(request_id)


def test_looking_again_loses_no_reservation() -> None:
    """In a pool so full that nobody else could start."""
    harness = Harness(num_usable_pages=4 * 8, max_prefill_tokens=PAGE_TOKENS, headroom_tokens=0)
    asked = [harness.submit([*SHARED, 41 + i], params=PARAMS) for i in range(4)]
    harness.drain()
    for request_id in asked:
        harness.expect_right(request_id)
