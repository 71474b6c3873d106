"""Tokens first, hashes second, and never a page given back before it was published."""

from __future__ import annotations

import pytest

from pegainfer_core.contract import SamplingParams
from tests.scheduler.harness import PAGE_TOKENS, Harness

PROMPT = [(3 * i) % 40 for i in range(3 * PAGE_TOKENS)]
LONG = SamplingParams(max_tokens=20, ignore_eos=True)


def first_token(harness: Harness) -> int:
    """Run a request up to its first token, no further."""
    request_id = harness.submit(PROMPT, params=LONG)
    while not harness.answers[request_id].token_ids:
        harness.step()
    return request_id


def test_a_first_token_waits_for_no_hash_of_its_last_chunk() -> None:
    harness = Harness(max_prefill_tokens=len(PROMPT))
    first_token(harness)
    [sequence] = harness.running
    assert sequence.chain is not None
    assert not sequence.chain.blocks
    harness.step()
    assert len(sequence.chain.blocks) == 3
    harness.drain()


def test_the_next_step_finds_what_the_one_before_it_filled() -> None:
    harness = Harness(max_prefill_tokens=len(PROMPT))
    first = first_token(harness)
    second = harness.submit([*PROMPT, 1], params=LONG)
    harness.steps(1)
    assert harness.answers[second].cached_tokens == 3 * PAGE_TOKENS
    harness.drain()
    for request_id in (first, second):
        harness.expect_right(request_id)


@pytest.mark.parametrize("end", ["abort", "length"])
def test_pages_are_published_before_they_are_given_back(end: str) -> None:
    harness = Harness(max_prefill_tokens=len(PROMPT))
    if end == "abort":
        harness.abort(first_token(harness))
    else:
        harness.run(PROMPT, params=SamplingParams(max_tokens=1))
    assert harness.metrics.kv_used_pages == 0
    assert harness.metrics.kv_cached_pages == 3
    assert harness.run([*PROMPT, 1], params=LONG).cached_tokens == 3 * PAGE_TOKENS
