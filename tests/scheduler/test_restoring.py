"""A prefix that left the device comes back from host memory, and no token changes."""

from __future__ import annotations

import pytest

from pegainfer_core.contract import SamplingParams
from tests.scheduler.harness import PAGE_TOKENS
from tests.scheduler.offload_harness import OffloadHarness

PROMPT = [(7 * i) % 40 for i in range(6 * PAGE_TOKENS + 2)]
OTHER = [(5 * i + 1) % 40 for i in range(6 * PAGE_TOKENS + 2)]
FULL = 6 * PAGE_TOKENS


def test_restored_is_computed() -> None:
    harness = OffloadHarness()
    cold = harness.run(PROMPT)
    harness.evict()
    warm, num_restored = harness.restored(PROMPT)
    assert (cold.cached_tokens, warm.cached_tokens, num_restored) == (0, FULL, FULL)
    assert warm.token_ids == cold.token_ids
    harness.expect_baseline()
    metrics = harness.metrics
    assert metrics.prefix_hit_tokens == 0, "that is the device's count"
    (host,) = metrics.kv_offload.tiers
    assert (host.name, host.hit_tokens, host.query_tokens) == ("host", FULL, 2 * FULL)
    assert host.loaded_bytes == 6 * harness.mover.page_bytes
    assert host.saved_bytes == harness.mover.num_saved * harness.mover.page_bytes


def test_generated_tokens_are_restored_too() -> None:
    harness = OffloadHarness()
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    first = harness.run(PROMPT, params=params)
    turn = [*PROMPT, *first.token_ids, 3, 4, 5]
    harness.evict()
    answer = harness.run(turn)
    assert answer.cached_tokens == (len(PROMPT) + 11) // PAGE_TOKENS * PAGE_TOKENS


def test_one_prompt_token_is_always_computed() -> None:
    harness = OffloadHarness()
    prompt = PROMPT[:FULL]
    harness.run(prompt)
    harness.evict()
    assert harness.run(prompt).cached_tokens == FULL - PAGE_TOKENS


def test_behind_a_prefix_on_the_device() -> None:
    """The device keeps the shared beginning in use; the rest comes from the host."""
    harness = OffloadHarness(max_model_len=128)
    harness.run(PROMPT)
    harness.evict()
    long = SamplingParams(max_tokens=60, ignore_eos=True)
    keeper = harness.submit(PROMPT[: 2 * PAGE_TOKENS + 1], params=long)
    harness.steps(4)
    request = harness.submit(PROMPT)
    harness.drain()
    harness.expect_right(keeper)
    harness.expect_right(request)
    assert harness.answers[request].cached_tokens == FULL
    assert harness.metrics.prefix_hit_tokens == 2 * PAGE_TOKENS
    assert harness.metrics.kv_offload.tiers[0].hit_tokens == FULL


def test_others_go_on_meanwhile() -> None:
    harness = OffloadHarness()
    harness.run(PROMPT)
    harness.evict()
    harness.eager = False
    restoring = harness.submit(PROMPT)
    other = harness.submit(OTHER)
    harness.steps(10)
    assert harness.answers[other].token_ids
    assert harness.answers[restoring].cached_tokens is None
    assert harness.metrics.kv_offload.num_restoring == 1
    harness.eager = True
    harness.drain()
    harness.expect_right(restoring)
    harness.expect_right(other)
    assert harness.answers[restoring].cached_tokens == FULL


def test_a_waiting_engine_neither_spins_nor_stalls() -> None:
    """With nothing but a restore, a step waits for news and then goes on by itself."""
    harness = OffloadHarness()
    harness.run(PROMPT)
    harness.evict()
    harness.eager = False
    request = harness.submit(PROMPT)
    num_steps = harness.model.num_steps
    for _ in range(50):
        if not harness.scheduler.has_work():
            break
        harness.step()
    harness.expect_right(request)
    assert harness.answers[request].cached_tokens == FULL
    assert harness.model.num_steps - num_steps <= 9


def test_saves_of_an_idle_engine_land() -> None:
    harness = OffloadHarness(eager=False)
    harness.run(PROMPT)
    harness.expect_baseline()
    assert len(harness.pool) == (len(PROMPT) + 7) // PAGE_TOKENS


@pytest.mark.parametrize("when", range(4))
def test_abort_during_restore(when: int) -> None:
    """Pages stay used until the copy into them has landed, whoever wants them."""
    harness = OffloadHarness(num_usable_pages=9)
    cold = harness.run(PROMPT)
    harness.evict()
    harness.eager = False
    request = harness.submit(PROMPT)
    harness.steps(0)
    for _ in range(when):
        harness.scheduler.step(harness.ledger)
        harness.thread.turn()
    harness.abort(request)
    assert harness.metrics.num_running == 0
    harness.check_pages()
    other = harness.submit(OTHER)
    harness.drain()
    harness.expect_right(other)
    harness.expect_baseline()
    assert harness.run(PROMPT).token_ids == cold.token_ids


def test_a_salt_is_part_of_the_key() -> None:
    harness = OffloadHarness()
    for salt, cached in (("", 0), ("a", 0), ("b", 0), ("a", FULL), ("", FULL)):
        answer = harness.run(PROMPT, cache_salt=salt)
        assert answer.cached_tokens == cached, salt
        harness.evict()


def test_reset_drops_host_memory_too() -> None:
    harness = OffloadHarness()
    harness.run(PROMPT)
    harness.scheduler.reset_prefix_cache()
    harness.scheduler.drop_offloaded()
    assert len(harness.pool) == 0
    assert harness.run(PROMPT).cached_tokens == 0


def test_a_reset_during_a_save_forgets_that_too() -> None:
    harness = OffloadHarness(eager=False)
    request = harness.submit(PROMPT)
    harness.steps(4)
    harness.offload._saver.flush()
    harness.thread.turn()
    assert harness.mover.under_way["save"]
    harness.scheduler.drop_offloaded()
    harness.drain()
    harness.expect_right(request)
    harness.evict()
    assert harness.run(PROMPT).cached_tokens == 0


def test_slow_copies_are_not_worth_it() -> None:
    """Bytes / rate of the tier < tokens / rate of prefill, or else it is computed, and counted."""
    harness = OffloadHarness(measured=True)
    harness.run(PROMPT)
    worth = harness.thread.worth
    worth.prefill.add(1e9, 1.0)
    worth.tiers["host"].add(1e9, 1e9)
    for num_skipped in (1, 2):
        harness.evict()
        assert harness.run(PROMPT).cached_tokens == 0
        assert harness.metrics.kv_offload.num_skipped_restores == num_skipped
    harness.expect_baseline()
    worth.tiers["host"].add(1e15, 1e-3)
    harness.evict()
    assert harness.run(PROMPT).cached_tokens == FULL
    assert harness.metrics.kv_offload.num_restores == 1


@pytest.mark.parametrize("direction", ["save", "load"])
def test_a_copy_that_fails(direction: str) -> None:
    harness = OffloadHarness()
    if direction == "load":
        harness.run(PROMPT)
    harness.mover.fails = lambda way: way == direction
    harness.evict()
    answer = harness.run(PROMPT)
    assert answer.cached_tokens == 0
    harness.expect_baseline()
    if direction == "load":
        assert harness.metrics.kv_offload.num_restore_failures == 1
    harness.mover.fails = lambda way: False
    harness.evict()
    again = harness.run(PROMPT)
    assert again.cached_tokens == (FULL if direction == "load" else 0)


def test_prompts_to_be_scored_are_computed() -> None:
    harness = OffloadHarness()
    harness.run(PROMPT)
    harness.evict()
    params = SamplingParams(max_tokens=2, prompt_logprobs=0)
    assert harness.run(PROMPT, params=params).cached_tokens == 0


def test_a_prefix_in_use_on_the_device_stays_in_host_memory() -> None:
    """It is found on the device every time, so nobody asks the host; its copy must not age."""
    harness = OffloadHarness(host_slots=24, num_usable_pages=40)
    hot = harness.run(PROMPT)
    for seed in range(6):
        harness.run([(3 * i + seed) % 40 for i in range(FULL + 2)])
        assert harness.run(PROMPT).cached_tokens == FULL
    assert harness.pool.num_evicted > 12
    harness.evict()
    answer, num_restored = harness.restored(PROMPT)
    assert (answer.token_ids, num_restored) == (hot.token_ids, FULL)


def test_preempted_requests_come_back_by_restore() -> None:
    """What was computed before is not computed again, though others took its pages."""
    harness = OffloadHarness(num_usable_pages=14, headroom_tokens=0, max_model_len=56)
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    requests = [harness.submit(prompt[:9], params=params) for prompt in (PROMPT, OTHER)]
    harness.drain()
    for request_id in requests:
        harness.expect_right(request_id)
    metrics = harness.metrics
    assert metrics.num_preemptions > 0
    assert metrics.kv_offload.num_restores > 0
    assert all(harness.answers[request_id].cached_tokens == 0 for request_id in requests)
    harness.expect_baseline()
