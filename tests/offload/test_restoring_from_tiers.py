"""Whatever a tier behind host memory does, answers are right, and nobody waits for long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pegainfer_core.contract import KvTierMetrics
from pegainfer_core.offload import GuardedTier, GuardPolicy, RecordLayout, lower_tier
from tests.scheduler.harness import PAGE_TOKENS
from tests.scheduler.offload_harness import OffloadHarness

from .guard_bench import WAIT_S, eventually, raises
from .scripted_tier import ScriptedTier, done

NUM_PAGES = 6
PROMPT = [(7 * i) % 40 for i in range(NUM_PAGES * PAGE_TOKENS + 2)]
OTHER = [(5 * i + 1) % 40 for i in range(NUM_PAGES * PAGE_TOKENS + 2)]
FULL = NUM_PAGES * PAGE_TOKENS
LAYOUT = RecordLayout(page_bytes=8 * PAGE_TOKENS)
POLICY = GuardPolicy(call_deadline_s=20.0, max_failures=3, cool_down_s=60.0)
HASTY = GuardPolicy(call_deadline_s=0.05, max_failures=3, cool_down_s=60.0)

Engine = Callable[..., OffloadHarness]


@pytest.fixture
def engine(scripted: ScriptedTier) -> Iterator[Engine]:
    """`engine()`: a scheduler in a new process, as it were, with the one tier behind its host."""
    made: list[OffloadHarness] = []

    def start(policy: GuardPolicy = POLICY, **options: Any) -> OffloadHarness:
        guard = GuardedTier("scripted", scripted, {0: LAYOUT}, policy)
        made.append(OffloadHarness(guards=[guard], **options))
        return made[-1]

    yield start
    for harness in made:
        scripted.script.clear()
        for future, argument in scripted.open_calls:
            if not future.done():
                future.set_result([False] * len(argument))
        eventually(lambda harness=harness: _idle(harness))  # type: ignore[misc]
        harness.offload.close()
        assert harness.mover.closed


def _idle(harness: OffloadHarness) -> bool:
    harness.thread.turn()
    return not any(tier.num_lent for tier in harness.thread.tiers)


def saved(engine: Engine, scripted: ScriptedTier) -> list[int]:
    """Let another engine fill the tier; returns the right answer."""
    first = engine()
    answer = first.run(PROMPT)
    eventually(lambda: (first.thread.turn(), len(scripted.shelf) >= NUM_PAGES)[1])
    return answer.token_ids


def tier_metrics(harness: OffloadHarness) -> KvTierMetrics:
    return harness.metrics.kv_offload.tiers[1]


def test_after_a_restart(engine: Engine, scripted: ScriptedTier) -> None:
    expected = saved(engine, scripted)
    second = engine()
    answer = second.run(PROMPT)
    assert (answer.token_ids, answer.cached_tokens) == (expected, FULL)
    metrics = tier_metrics(second)
    assert (metrics.name, metrics.hit_tokens, metrics.query_tokens) == ("scripted", FULL, FULL)
    assert metrics.loaded_bytes == NUM_PAGES * LAYOUT.record_bytes
    assert second.metrics.kv_offload.tiers[0].hit_tokens == 0


def test_what_was_loaded_is_promoted(engine: Engine, scripted: ScriptedTier) -> None:
    expected = saved(engine, scripted)
    second = engine()
    second.run(PROMPT)
    scripted.script["load"] = scripted.script["contains"] = raises(OSError("gone"))
    second.evict()
    answer = second.run(PROMPT)
    assert (answer.token_ids, answer.cached_tokens) == (expected, FULL)
    assert second.metrics.kv_offload.tiers[0].hit_tokens == FULL


def test_partly_in_host_memory(engine: Engine, scripted: ScriptedTier) -> None:
    """The beginning comes from the host, the rest from the tier, in one restore."""
    expected = saved(engine, scripted)
    second = engine()
    second.run(PROMPT[: 2 * PAGE_TOKENS + 1])
    second.evict()
    answer = second.run(PROMPT)
    assert (answer.token_ids, answer.cached_tokens) == (expected, FULL)
    host, tier = second.metrics.kv_offload.tiers
    assert tier.hit_tokens == FULL, "the two pages before came from there, too"
    assert host.hit_tokens == 2 * PAGE_TOKENS


def damage(scripted: ScriptedTier, index: int) -> None:
    key = list(scripted.shelf)[index]
    content = bytearray(scripted.shelf[key])
    content[3] ^= 0x10
    scripted.shelf[key] = bytes(content)


@pytest.mark.parametrize("index", [0, 3, 5])
def test_a_damaged_record(index: int, engine: Engine, scripted: ScriptedTier) -> None:
    """Pages before it still count; it and what follows are computed."""
    expected = saved(engine, scripted)
    damage(scripted, index)
    second = engine()
    answer = second.run(PROMPT)
    assert answer.token_ids == expected
    assert answer.cached_tokens == index * PAGE_TOKENS
    assert second.metrics.kv_offload.num_restore_failures == 1
    assert tier_metrics(second).num_corrupt == 1
    second.expect_baseline()


def test_a_tier_that_swaps_records(engine: Engine, scripted: ScriptedTier) -> None:
    """It says True and gives another key's record, sound in itself."""
    expected = saved(engine, scripted)

    def swapped(records: Any) -> Any:
        for record in records:
            record.buffer[:] = scripted.shelf[records[-1].key]
        return done([True] * len(records))

    scripted.script["load"] = swapped
    second = engine()
    answer = second.run(PROMPT)
    assert (answer.token_ids, answer.cached_tokens) == (expected, 0)
    assert tier_metrics(second).is_cut_off


def test_a_failing_tier_is_cut_off(engine: Engine, scripted: ScriptedTier) -> None:
    expected = saved(engine, scripted)
    scripted.script["load"] = raises(OSError("the disk is on fire"))
    second = engine()
    for _ in range(5):
        answer = second.run(PROMPT)
        assert (answer.token_ids, answer.cached_tokens) == (expected, 0)
        second.evict()
        second.pool.clear()
    metrics = tier_metrics(second)
    assert metrics.is_cut_off and metrics.num_failures == 3
    assert scripted.calls.count("load") == 3
    second.expect_baseline()


def test_a_tier_that_hangs_in_a_load(engine: Engine, scripted: ScriptedTier) -> None:
    """Its buffers stay its own until it is done; the request is computed at the deadline."""
    expected = saved(engine, scripted)
    scripted.script["load"] = scripted.hang
    second = engine(HASTY)
    restoring = second.submit(PROMPT)
    other = second.submit(OTHER)
    started_s = time.monotonic()
    second.drain()
    assert time.monotonic() - started_s < WAIT_S / 2
    for request_id in (restoring, other):
        second.expect_right(request_id)
    assert second.answers[restoring].token_ids == expected
    (tier,) = second.thread.tiers
    eventually(lambda: (second.thread.turn(), tier.num_lent == NUM_PAGES)[1])
    assert second.pool.num_pinned == NUM_PAGES
    assert tier_metrics(second).held_bytes == NUM_PAGES * LAYOUT.record_bytes
    ((future, records),) = scripted.open_calls
    future.set_result(scripted.fill(records))
    eventually(lambda: _idle(second))
    second.expect_baseline()


def test_a_tier_that_hangs_in_a_look_up(
    engine: Engine, scripted: ScriptedTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lower_tier, "_LOOKUP_S", 0.05)
    expected = saved(engine, scripted)
    scripted.script["contains"] = scripted.hang
    second = engine()
    answer = second.run(PROMPT)
    assert (answer.token_ids, answer.cached_tokens) == (expected, 0)
    assert tier_metrics(second).num_timeouts == 1


def test_patience_ends_where_computing_is_quicker(
    engine: Engine, scripted: ScriptedTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tier may keep its deadlines and still be too slow for this request."""
    expected = saved(engine, scripted)
    scripted.script["load"] = scripted.hang
    second = engine()
    monkeypatch.setattr(second.thread.worth, "patience_s", lambda num_pages: 0.05)
    started_s = time.monotonic()
    answer = second.run(PROMPT)
    assert time.monotonic() - started_s < WAIT_S / 2
    assert (answer.token_ids, answer.cached_tokens) == (expected, 0)
    assert second.metrics.kv_offload.num_restore_failures == 1


def test_a_tier_that_hangs_in_a_save(engine: Engine, scripted: ScriptedTier) -> None:
    """It gets no more than its share of the host's slots, which others go on using."""
    scripted.script["save"] = scripted.hang
    harness = engine(host_slots=24)
    for seed in range(8):
        prompt = [(7 * i + seed) % 40 for i in range(FULL + 2)]
        harness.run(prompt)
        assert harness.thread.tiers[0].num_lent <= 6
    assert tier_metrics(harness).num_unsaved > 20
    assert len(harness.pool) > 12


@pytest.mark.parametrize("method", ["contains", "load"])
def test_abort_while_a_tier_is_asked(method: str, engine: Engine, scripted: ScriptedTier) -> None:
    saved(engine, scripted)
    scripted.script[method] = scripted.hang
    second = engine(num_usable_pages=9)
    request = second.submit(PROMPT)
    second.steps(3)
    eventually(lambda: (second.step(), bool(scripted.open_calls))[1])
    second.abort(request)
    assert second.metrics.num_running == 0
    del scripted.script[method]
    other = second.submit(OTHER)
    eventually(lambda: (second.step(), second.answers[other].terminal is not None)[1])
    second.expect_right(other)
    ((future, argument),) = scripted.open_calls
    full = scripted.fill(argument) if method == "load" else [True] * len(argument)
    future.set_result(full)
    eventually(lambda: (second.step(), not second.offload.busy and _idle(second))[1])
    second.expect_baseline()


def test_preemption_while_a_tier_is_asked(engine: Engine, scripted: ScriptedTier) -> None:
    """The restoring request is the youngest: its pages go to the one that decodes."""
    saved(engine, scripted)
    scripted.script["load"] = scripted.hang
    second = engine(num_usable_pages=14, headroom_tokens=0, max_model_len=56)
    from pegainfer_core.contract import SamplingParams

    decoding = second.submit(OTHER[:9], params=SamplingParams(max_tokens=40, ignore_eos=True))
    second.steps(3)
    restoring = second.submit(PROMPT)
    for _ in range(60):
        second.step()
    assert second.metrics.num_preemptions > 0
    for future, records in scripted.open_calls:
        future.set_result(scripted.fill(records))
    del scripted.script["load"]
    second.drain()
    for request_id in (decoding, restoring):
        second.expect_right(request_id)
    eventually(lambda: _idle(second))
    second.expect_baseline()


def test_closing_lets_saves_reach_the_tier(engine: Engine, scripted: ScriptedTier) -> None:
    harness = engine(eager=False)
    request = harness.submit(PROMPT)
    while harness.scheduler.has_work() and not harness.answers[request].terminal:
        harness.scheduler.step(harness.ledger)
        harness._collect()
    harness.offload.close()
    assert len(scripted.shelf) >= NUM_PAGES
    assert scripted.closed.wait(WAIT_S)
