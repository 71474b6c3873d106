"""Small pools, many requests: nobody stalls, nobody starves, nothing changes an answer."""

from __future__ import annotations

import random

import pytest

from pegainfer_core.contract import FinishReason, SamplingParams
from pegainfer_core.kv import BlockHasher
from tests.scheduler.harness import PAGE_TOKENS, Harness

LONG = SamplingParams(max_tokens=40, ignore_eos=True)


@pytest.mark.parametrize("reserve", ["on-demand", "worst-case"])
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_a_pool_of_eight_pages_never_stalls(reserve: str, prefix_cache: bool) -> None:
    rng = random.Random(25)
    harness = Harness(
        num_usable_pages=8,
        max_num_seqs=6,
        prefix_cache=prefix_cache,
        reserve=reserve,  # type: ignore[arg-type]
        headroom_tokens=0,
    )
    for _ in range(60):
        prompt = [rng.randrange(40) for _ in range(rng.randrange(1, 20))]
        params = SamplingParams(max_tokens=rng.choice([1, 5, 13, None]), seed=rng.randrange(4))
        harness.submit(prompt, params=params)
        for _ in range(rng.randrange(3)):
            harness.step()
    harness.drain()
    for request_id in harness.requests:
        harness.expect_right(request_id)
        assert harness.answers[request_id].reason in (FinishReason.LENGTH, FinishReason.STOP)
    assert (harness.metrics.num_preemptions > 0) == (reserve == "on-demand")


def test_preemption_changes_nothing_and_takes_the_youngest() -> None:
    harness = Harness(num_usable_pages=20, headroom_tokens=0)
    params = [
        SamplingParams(max_tokens=40, ignore_eos=True, seed=7, logprobs=1),
        SamplingParams(max_tokens=40, ignore_eos=True, seed=7, prompt_logprobs=0),
        SamplingParams(max_tokens=40, min_tokens=40),
    ]
    ids = [harness.submit([i, 1, 2, 3, 4, 5], params=p) for i, p in enumerate(params)]
    while harness.scheduler.has_work():
        harness.step()
        preempted = [seq.request_id for seq in harness.running if seq.num_preemptions]
        assert ids[0] not in preempted
    harness.drain()
    assert harness.metrics.num_preemptions >= 2
    for request_id in ids:
        harness.expect_right(request_id)
        assert harness.answers[request_id].cached_tokens == 0  # as first admitted
    assert harness.metrics.prefix_query_tokens == 12  # a prompt to be scored asks for nothing


def test_preemption_spares_better_priority() -> None:
    harness = Harness(num_usable_pages=16, headroom_tokens=0)
    low = harness.submit([1, 2, 3], params=LONG, priority=5)
    harness.step()
    high = harness.submit([4, 5, 6], params=LONG, priority=-5)
    order = []
    while harness.scheduler.has_work():
        harness.step()
        assert all(seq.num_preemptions == 0 for seq in harness.running if seq.request_id == high)
        order += [i for i in (low, high) if harness.answers[i].terminal and i not in order]
    assert order == [high, low]
    assert harness.metrics.num_preemptions >= 1
    for request_id in (low, high):
        harness.expect_right(request_id)


def test_priority_decides_who_is_admitted_first() -> None:
    harness = Harness(num_usable_pages=40, max_num_seqs=1)
    first = harness.submit([1], params=LONG)
    harness.step()
    ids = [harness.submit([2 + i], priority=priority) for i, priority in enumerate((3, 0, -2, 0))]
    ended: list[int] = []
    while harness.scheduler.has_work():
        harness.step()
        ended += [i for i, a in harness.answers.items() if a.terminal and i not in ended]
    assert ended == [first, ids[2], ids[1], ids[3], ids[0]]


def test_a_better_priority_takes_over_the_prefill_budget() -> None:
    harness = Harness(num_usable_pages=100, max_prefill_tokens=8)
    harness.submit([(7 * i) % 40 for i in range(160)])
    harness.step()
    urgent = harness.submit([(3 * i) % 40 for i in range(40)], priority=-1)
    for _ in range(5 + harness.lag):
        assert not harness.answers[urgent].token_ids
        harness.step()
    assert len(harness.answers[urgent].token_ids) == 1
    harness.drain()


def test_short_prompts_start_soon_beside_a_stream_of_long_ones() -> None:
    harness = Harness(num_usable_pages=1000, max_num_seqs=16, max_prefill_tokens=16)
    rng = random.Random(3)
    waits = []
    for _ in range(20):
        harness.submit([rng.randrange(40) for _ in range(100)])
        short = harness.submit([rng.randrange(40) for _ in range(5)])
        steps = 0
        while harness.answers[short].cached_tokens is None or not harness.answers[short].token_ids:
            harness.step()
            steps += 1
            if harness.answers[short].terminal:
                break
        waits.append(steps)
        for _ in range(6):
            harness.step()
    assert max(waits) <= 2
    harness.drain()
    for request_id in harness.requests:
        harness.expect_right(request_id)


def test_a_long_prompt_moves_on_beside_a_stream_of_short_ones() -> None:
    harness = Harness(num_usable_pages=1000, max_num_seqs=64, max_prefill_tokens=16)
    long = harness.submit([(7 * i) % 40 for i in range(160)], params=LONG)
    rng = random.Random(4)
    steps = 0
    while not harness.answers[long].token_ids:
        for _ in range(4):
            harness.submit([rng.randrange(40) for _ in range(10)])
        harness.step()
        steps += 1
    assert steps == 160 / 8 + harness.lag  # half of every step's budget
    harness.drain()


def test_decoding_goes_on_in_every_step_of_a_long_prefill() -> None:
    harness = Harness(num_usable_pages=200, max_prefill_tokens=8)
    decoding = harness.submit([1, 2, 3], params=LONG)
    harness.steps(1 + harness.lag)
    harness.submit([(7 * i) % 40 for i in range(160)])
    for count in range(2, 20):
        harness.step()
        assert len(harness.answers[decoding].token_ids) == count
    harness.drain()


def test_many_prompts_of_one_token_start_in_one_step() -> None:
    harness = Harness(num_usable_pages=700, max_num_seqs=64, max_prefill_tokens=64)
    ids = [harness.submit([i % 40], params=LONG) for i in range(64)]
    harness.steps(1 + harness.lag)
    assert all(len(harness.answers[request_id].token_ids) == 1 for request_id in ids)
    harness.drain()


def test_a_low_priority_is_served_under_an_endless_stream_of_better_ones() -> None:
    harness = Harness(num_usable_pages=100, max_num_seqs=2, max_prefill_tokens=64)
    low = harness.submit([1, 2, 3], priority=9)
    one = SamplingParams(max_tokens=1)
    for request_number in range(400):
        for i in range(3):
            harness.submit([request_number % 40, i], params=one)
        harness.step()
        if harness.answers[low].terminal is not None:
            break
    assert request_number < 150 * (1 + harness.lag)  # whoever ends holds its slot until it is read
    harness.expect_right(low)
    harness.drain()


def test_a_prompt_to_be_scored_is_computed_in_full() -> None:
    harness = Harness()
    prompt = [(3 * i) % 40 for i in range(3 * PAGE_TOKENS)]
    harness.run(prompt)
    scored = harness.run(prompt, params=SamplingParams(max_tokens=0, prompt_logprobs=0))
    assert scored.cached_tokens == 0
    assert scored.prompt_logprobs is not None and len(scored.prompt_logprobs) == len(prompt)
    assert harness.run(prompt).cached_tokens == 2 * PAGE_TOKENS


def test_zero_output_fills_the_cache() -> None:
    harness = Harness()
    prompt = [(3 * i) % 40 for i in range(3 * PAGE_TOKENS)]
    assert harness.run(prompt, params=SamplingParams(max_tokens=0)).token_ids == []
    assert harness.run([*prompt, 1]).cached_tokens == 3 * PAGE_TOKENS


def test_salts_and_a_constant_hash_keep_answers_right() -> None:
    for hasher in (None, BlockHasher(lambda data: b"same")):
        harness = Harness(num_usable_pages=60, hasher=hasher)
        prompt = [(3 * i) % 40 for i in range(4 * PAGE_TOKENS)]
        other = [(3 * i + 1) % 40 for i in range(4 * PAGE_TOKENS)]
        for salt in ("s1", "", "s2"):
            assert harness.run(prompt, cache_salt=salt).cached_tokens == 0
            assert harness.run(other, cache_salt=salt).cached_tokens == 0
        for salt in ("s1", "", "s2"):
            harness.run(prompt, cache_salt=salt)
            harness.run(other, cache_salt=salt)


def test_metrics_tell_the_truth() -> None:
    harness = Harness(num_usable_pages=10, max_num_seqs=1)
    prompt = [(3 * i) % 40 for i in range(2 * PAGE_TOKENS + 1)]
    no_end = SamplingParams(max_tokens=4, ignore_eos=True)
    harness.submit(prompt, params=no_end)
    harness.submit(prompt, params=no_end)
    harness.step()
    now = harness.metrics
    assert (now.num_running, now.num_waiting) == (1, 1)
    assert (now.kv_total_pages, now.kv_used_pages, now.kv_cached_pages) == (10, 2, 0)
    harness.drain()
    now = harness.metrics
    assert (now.kv_used_pages, now.kv_cached_pages) == (0, 3)
    assert (now.prefix_query_tokens, now.prefix_hit_tokens) == (18, 8)
    assert now.num_evicted_pages == 0
    harness.run([1] * 37, params=SamplingParams(max_tokens=1))
    assert harness.metrics.num_evicted_pages == 3
    harness.scheduler.reset_prefix_cache()
    assert harness.metrics.kv_cached_pages == 0
    harness.scheduler.close()
    assert harness.model.closed
