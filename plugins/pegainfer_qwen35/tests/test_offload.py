"""Prefixes come back from other memory with the state behind them, or not at all."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from pegainfer_core.contract import SamplingParams
from pegainfer_core.kv import BlockHasher
from plugins.pegainfer_qwen35.tests.offload_harness import (
    AheadOffloadHarness,
    StatefulOffloadHarness,
)
from tests.scheduler.harness import PAGE_TOKENS
from tests.scheduler.test_offload_history import OffloadHistory

PROMPT = [(7 * i) % 40 for i in range(6 * PAGE_TOKENS + 2)]
FULL = 6 * PAGE_TOKENS
ONE = SamplingParams(max_tokens=1)
LONG = SamplingParams(max_tokens=12, ignore_eos=True)
ROOM = {"num_usable_pages": 60, "num_snapshots": 20}


@pytest.fixture(params=[StatefulOffloadHarness, AheadOffloadHarness])
def harness(request: pytest.FixtureRequest) -> StatefulOffloadHarness:
    made: StatefulOffloadHarness = request.param(**ROOM)
    return made


def test_pages_and_state_come_back_together(harness: StatefulOffloadHarness) -> None:
    cold = harness.run(PROMPT)
    harness.evict()
    warm, num_restored = harness.restored(PROMPT)
    assert (cold.cached_tokens, warm.cached_tokens, num_restored) == (0, FULL, FULL)
    assert harness.movers[1].num_loaded == 1
    harness.expect_baseline()
    assert harness.metrics.kv_offload.num_restores == 1


def test_the_next_turn_comes_back(harness: StatefulOffloadHarness) -> None:
    """Of the states that an answer passes, the last one is kept elsewhere, and no other."""
    first = harness.run(PROMPT, params=LONG)
    harness.expect_baseline()
    assert harness.movers[1].num_saved == 2
    harness.evict()
    turn = harness.run([*PROMPT, *first.token_ids, 3, 4, 5], params=ONE)
    assert turn.cached_tokens == (len(PROMPT) + 11) // PAGE_TOKENS * PAGE_TOKENS


def test_pages_without_a_state_are_nothing(harness: StatefulOffloadHarness) -> None:
    harness.run(PROMPT)
    harness.expect_baseline()
    harness.pools[1].clear()
    harness.evict()
    warm, num_restored = harness.restored(PROMPT)
    assert (warm.cached_tokens, num_restored) == (0, 0)
    harness.expect_baseline()


def test_a_state_without_its_pages_is_nothing(harness: StatefulOffloadHarness) -> None:
    harness.run(PROMPT)
    harness.expect_baseline()
    harness.pools[0].clear()
    harness.evict()
    warm, num_restored = harness.restored(PROMPT)
    assert (warm.cached_tokens, num_restored) == (0, 0)


def test_a_shorter_prefix_ends_in_its_own_state(harness: StatefulOffloadHarness) -> None:
    harness.run(PROMPT[: 3 * PAGE_TOKENS + 1], params=ONE)
    harness.run([41, *PROMPT], params=ONE)
    harness.run(PROMPT[: 5 * PAGE_TOKENS + 1], params=ONE)
    harness.evict()
    other = [*PROMPT[: 4 * PAGE_TOKENS], 44, 45, 46, 47, 48]
    assert harness.run(other, params=ONE).cached_tokens == 3 * PAGE_TOKENS


def test_a_state_comes_back_to_pages_that_stayed() -> None:
    """Pages outnumber snapshots: the device keeps those, and nothing but the state is copied."""
    harness = StatefulOffloadHarness(num_usable_pages=60, num_snapshots=2)
    harness.run(PROMPT)
    for first in range(41, 46):
        harness.run([first, *PROMPT[:9]])
    assert not any(harness.kv.snapshots.pools[0].holds(b) for b in known(harness, PROMPT)[4:])
    warm, num_restored = harness.restored(PROMPT)
    assert (warm.cached_tokens, num_restored) == (FULL, FULL)
    assert (harness.movers[0].num_loaded, harness.movers[1].num_loaded) == (0, 1)
    harness.expect_baseline()


def known(harness: StatefulOffloadHarness, prompt: list[int]) -> list[object]:
    chain = harness.kv.new_chain()
    assert chain is not None and harness.kv._cache is not None
    harness.kv._cache.match(chain, prompt, len(prompt) // PAGE_TOKENS)
    return list(chain.blocks)


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("direction", ["save", "load"])
def test_a_copy_that_fails_costs_the_whole(
    part: int, direction: str, harness: StatefulOffloadHarness
) -> None:
    """KV without the state, or the state without KV, is never taken over."""
    if direction == "load":
        harness.run(PROMPT)
        harness.expect_baseline()
    harness.movers[part].fails = lambda way: way == direction
    harness.evict()
    answer = harness.run(PROMPT)
    assert answer.cached_tokens == 0
    harness.expect_baseline()
    failures = harness.metrics.kv_offload.num_restore_failures
    assert failures == (1 if direction == "load" else 0)
    harness.movers[part].fails = lambda way: False
    harness.evict()
    again = harness.run(PROMPT)
    assert again.cached_tokens == (FULL if direction == "load" else 0)


@pytest.mark.parametrize("when", range(5))
def test_abort_during_restore(when: int, harness: StatefulOffloadHarness) -> None:
    """Pages and the snapshot's slot stay taken until the copies into them have landed."""
    cold = harness.run(PROMPT)
    harness.expect_baseline()
    harness.evict()
    harness.eager = False
    request = harness.submit(PROMPT)
    for _ in range(when):
        harness.scheduler.step(harness.ledger)
        harness.turn()
    harness.abort(request)
    assert harness.metrics.num_running == 0
    harness.check_pages()
    other = harness.submit([5, *PROMPT])
    harness.drain()
    harness.expect_right(other)
    harness.expect_baseline()
    assert harness.run(PROMPT).token_ids == cold.token_ids


def test_others_go_on_meanwhile(harness: StatefulOffloadHarness) -> None:
    harness.run(PROMPT)
    harness.expect_baseline()
    harness.evict()
    harness.eager = False
    restoring, other = harness.submit(PROMPT), harness.submit([9, *PROMPT])
    harness.steps(10)
    assert harness.answers[other].token_ids
    assert harness.answers[restoring].cached_tokens is None
    assert harness.metrics.kv_offload.num_restoring == 1
    harness.eager = True
    harness.drain()
    harness.expect_right(restoring)
    assert harness.answers[restoring].cached_tokens == FULL


def test_copies_leave_room_for_new_snapshots() -> None:
    harness = StatefulOffloadHarness(num_usable_pages=60, num_snapshots=4, eager=False)
    for first in range(8):
        harness.submit([first, *PROMPT], params=ONE)
    for _ in range(40):
        harness.scheduler.step(harness.ledger)
        assert harness.lane.num_lent <= 2
    harness.eager = True
    harness.drain()
    harness.expect_baseline()
    assert harness.lane.num_unsaved > 0


class StatefulOffloadHistory(OffloadHistory):
    """Submissions, steps, aborts, evictions and landings in any order."""

    harness: StatefulOffloadHarness  # type: ignore[assignment]

    @initialize(
        ahead=st.booleans(),
        num_snapshots=st.sampled_from([1, 2, 5, 40]),
        num_usable_pages=st.integers(3, 30),
        host_slots=st.sampled_from([1, 10, 60]),
        host_states=st.sampled_from([1, 3, 60]),
        max_num_seqs=st.integers(1, 6),
        max_prefill_tokens=st.sampled_from([3, 8, 64]),
        reserve=st.sampled_from(["on-demand", "on-demand", "worst-case"]),
        headroom_tokens=st.sampled_from([0, 0, 8, 512]),
        constant_hash=st.sampled_from([False, False, False, True]),
        eager=st.sampled_from([False, False, True]),
    )
    def start(self, ahead: bool, constant_hash: bool, **options: object) -> None:  # type: ignore[override]
        hasher = BlockHasher(lambda data: b"same") if constant_hash else None
        options["max_model_len"] = 96
        made = AheadOffloadHarness if ahead else StatefulOffloadHarness
        self.harness = made(hasher=hasher, **options)  # type: ignore[arg-type, assignment]

    @rule(part=st.integers(0, 1), direction=st.sampled_from(["save", "load"]))
    def land(self, part: int, direction: str) -> None:  # type: ignore[override]
        self.harness.movers[part].land_one(direction)  # type: ignore[misc]

    @rule(part=st.integers(0, 1), direction=st.sampled_from(["save", "load", ""]))
    def refuse(self, part: int, direction: str) -> None:  # type: ignore[override]
        """The device refuses copies of one kind in one direction from now on, or none."""
        self.harness.movers[part].fails = lambda way: way == direction

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        self.harness.eager = True
        self.harness.drain()
        for request_id in self.harness.requests:
            assert self.harness.answers[request_id].terminal is not None
            self.harness.expect_right(request_id)
        self.harness.expect_baseline()


def test_any_history_with_offload() -> None:
    run_state_machine_as_test(
        StatefulOffloadHistory,
        settings=settings(
            max_examples=int(os.environ.get("PEGAINFER_HISTORIES", "6")),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
