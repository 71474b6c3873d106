"""K07 with overlapped steps: an abort while the next step is on its way already.

The model checks every row, the harness every page after every call: no page of a launched step may
be missing, and whoever gets a freed page at once must read only what it wrote itself.
"""

from __future__ import annotations

import pytest

from pegainfer_core.contract import SamplingParams
from tests.scheduler.harness import PAGE_TOKENS, Harness

CHUNK = 2 * PAGE_TOKENS
NUM_CHUNKS = 8
ROUNDS = 50
UNKNOWN_ID = 10**6


class AheadHarness(Harness):
    """Results are read after the next step was launched."""

    ahead = True


@pytest.mark.parametrize("finishing", [False, True], ids=["alone", "beside a finish"])
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_aborts_beside_steps_in_flight(prefix_cache: bool, finishing: bool) -> None:
    """Eight chunks, aborted behind 0 to 8 of them and in its first tokens."""
    harness = AheadHarness(
        # R, the victim and what ends beside it fill the pool: freed pages are in use again at once.
        num_usable_pages=160 + 2 * NUM_CHUNKS + 2,
        max_prefill_tokens=CHUNK,
        max_model_len=1024,
        prefix_cache=prefix_cache,
        headroom_tokens=1,
    )
    always = SamplingParams(max_tokens=640, ignore_eos=True)
    running = harness.submit([7, 8, 9], params=always)
    harness.steps(3)
    for turn in range(ROUNDS):
        num_steps = turn % (NUM_CHUNKS + 3)
        baseline = sum(len(sequence.page_ids) for sequence in harness.running)
        if finishing:
            # Its last token comes with the step in which the other is aborted.
            short = SamplingParams(max_tokens=num_steps + 1, ignore_eos=True)
            beside = harness.submit([turn % 30, 1], params=short)
        prompt = [(turn + 3 * index) % 40 for index in range(NUM_CHUNKS * CHUNK)]
        victim = harness.submit(prompt, params=SamplingParams(max_tokens=20, ignore_eos=True))
        harness.steps(num_steps)
        for request_id in (victim, victim, UNKNOWN_ID):
            harness.abort(request_id)
        assert harness.answers[victim].terminal is not None
        third_prompt = [(2 * turn + 5 * index) % 40 for index in range(PAGE_TOKENS + 1)]
        third = harness.submit(third_prompt, params=SamplingParams(max_tokens=2))
        while harness.answers[third].terminal is None:
            harness.step()
        for request_id in (third, *((beside,) if finishing else ())):
            harness.expect_right(request_id)
        harness.expect_right(victim)
        held = sum(len(sequence.page_ids) for sequence in harness.running)
        assert len(harness.running) == 1, "R decodes all the time"
        assert harness.metrics.kv_used_pages == held < baseline + 6
    assert harness.answers[running].terminal is None
    harness.drain()
    harness.expect_right(running)
