"""K01: lengths around page borders, cold, warm, continued and side by side."""

from __future__ import annotations

import pytest

from pegainfer_core.contract import SamplingParams
from tests.scheduler.harness import PAGE_TOKENS, Harness

B = PAGE_TOKENS
LENGTHS = [1, B - 1, B, B + 1, 2 * B - 1, 2 * B, 2 * B + 1, 3 * B]
MAX_TOKENS = 2 * B + 2
PARAMS = SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True, logprobs=1)


def just_enough(length: int) -> int:
    """Pages of a request's whole life: the last token is never an input."""
    return -(-(length + MAX_TOKENS - 1) // B)


@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
def test_cold_warm_continued_and_twice_at_once(length: int, tight: bool) -> None:
    harness = Harness(num_usable_pages=just_enough(length + 5) if tight else 100)
    prompt = [(3 * i + length) % 40 for i in range(length)]
    cold = harness.run(prompt, params=PARAMS)
    assert cold.cached_tokens == 0

    warm = harness.run(prompt, params=PARAMS)
    assert warm.cached_tokens == (length - 1) // B * B
    assert (warm.token_ids, warm.logprobs) == (cold.token_ids, cold.logprobs)

    longer = prompt + cold.token_ids[:5]
    continued = harness.run(longer, params=PARAMS)
    assert continued.cached_tokens == (length + 4) // B * B
    # The stand-in's choice also depends on what was generated, as penalties do; so only its
    # own answer alone is the measure here.

    twins = [harness.submit(prompt, params=PARAMS) for _ in range(2)]
    harness.drain()
    for twin in twins:
        harness.expect_right(twin)
        assert harness.answers[twin].token_ids == cold.token_ids


@pytest.mark.parametrize("length", LENGTHS)
def test_two_cold_copies_in_one_step(length: int) -> None:
    harness = Harness(num_usable_pages=40, max_prefill_tokens=64)
    prompt = [(5 * i + length) % 40 for i in range(length)]
    twins = [harness.submit(prompt, params=PARAMS) for _ in range(2)]
    harness.step()
    assert harness.metrics.num_running == 2
    harness.drain()
    for twin in twins:
        harness.expect_right(twin)
        assert harness.answers[twin].cached_tokens == 0
    assert harness.run(prompt, params=PARAMS).cached_tokens == (length - 1) // B * B


@pytest.mark.parametrize("length", LENGTHS)
def test_a_pool_one_page_too_small_is_refused_with_numbers(length: int) -> None:
    harness = Harness(num_usable_pages=just_enough(length) - 1)
    request_id = harness.submit([1] * length, params=PARAMS)
    terminal = harness.answers[request_id].terminal
    assert f"needs {just_enough(length)} KV pages" in str(getattr(terminal, "reason", ""))
    assert not harness.scheduler.has_work()
