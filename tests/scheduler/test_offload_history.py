"""Whatever clients do and whenever copies land: right tokens, every page and every slot back."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pegainfer_core.contract import SamplingParams
from pegainfer_core.kv import BlockHasher
from tests.scheduler.offload_harness import OffloadHarness
from tests.scheduler.test_any_history import prompts, sampling


class OffloadHistory(RuleBasedStateMachine):
    """Submissions, steps, aborts, evictions and landings in any order."""

    @initialize(
        num_usable_pages=st.integers(3, 30),
        host_slots=st.sampled_from([1, 3, 10, 60]),
        max_num_seqs=st.integers(1, 6),
        max_prefill_tokens=st.sampled_from([3, 8, 64]),
        reserve=st.sampled_from(["on-demand", "on-demand", "worst-case"]),
        headroom_tokens=st.sampled_from([0, 0, 8, 512]),
        constant_hash=st.sampled_from([False, False, False, True]),
        eager=st.sampled_from([False, False, True]),
    )
    def start(self, constant_hash: bool, **options: object) -> None:
        hasher = BlockHasher(lambda data: b"same") if constant_hash else None
        options["max_model_len"] = 96
        self.harness = OffloadHarness(hasher=hasher, **options)  # type: ignore[arg-type]

    @rule(
        prompt=prompts,
        params=sampling,
        priority=st.sampled_from([0, 0, 0, -1, 5]),
        salt=st.sampled_from(["", "", "", "a"]),
        copies=st.integers(1, 3),
    )
    def submit(
        self, prompt: list[int], params: SamplingParams, priority: int, salt: str, copies: int
    ) -> None:
        for _ in range(copies):
            self.harness.submit(prompt, params=params, priority=priority, cache_salt=salt)

    @precondition(lambda self: self.harness.scheduler.has_work())
    @rule(count=st.integers(1, 6))
    def step(self, count: int) -> None:
        for _ in range(count):
            if self.harness.scheduler.has_work():
                self.harness.step()

    @rule(direction=st.sampled_from(["save", "load"]))
    def land(self, direction: str) -> None:
        self.harness.mover.land_one(direction)

    @rule(direction=st.sampled_from(["save", "load", ""]))
    def refuse(self, direction: str) -> None:
        """The device refuses copies in one direction from now on, or none."""
        self.harness.mover.fails = lambda way: way == direction

    @precondition(lambda self: self.harness.requests)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.harness.abort(data.draw(st.integers(1, len(self.harness.requests) + 1)))

    @rule()
    def evict(self) -> None:
        self.harness.scheduler.reset_prefix_cache()
        self.harness.check_pages()

    @rule()
    def drop(self) -> None:
        self.harness.scheduler.drop_offloaded()

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        self.harness.eager = True  # copies land at last, whatever else there is to do
        self.harness.drain()
        for request_id in self.harness.requests:
            assert self.harness.answers[request_id].terminal is not None
            self.harness.expect_right(request_id)
        self.harness.mover.land_all()
        self.harness.thread.turn()
        self.harness.expect_baseline()


def test_any_history_with_offload() -> None:
    run_state_machine_as_test(
        OffloadHistory,
        settings=settings(
            max_examples=20,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
