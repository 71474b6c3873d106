"""The simulator: right figures of loads reckoned by hand, and teeth against bad schedulers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pegainfer_qwen3.scheduler import Qwen3Scheduler

from pegainfer_core.contract import GenerateRequest, ServePlan
from pegainfer_core.engine import Ledger, ModelRunner, StepWork
from pegainfer_core.kv import KvManager
from pegainfer_core.testing import (
    H200_HOST_TIER,
    H200_PLAN,
    H200_QWEN3_4B,
    Arrival,
    ClosedTrace,
    ConversationTrace,
    CostModel,
    FrontEndCost,
    HostTierCost,
    OpenTrace,
    Report,
    SimulatedHostTier,
    SimulatedRunner,
    Simulation,
    SimulationError,
    Trace,
)

MS = 1e-3
#: A step takes 10 ms, whatever is in it.
EVEN = CostModel(
    weight_bytes=0,
    kv_bytes_per_token=0,
    flops_per_token=0,
    flops_per_pair=0,
    weight_bytes_per_s=1,
    kv_bytes_per_s=1,
    flops_per_s=1,
    attention_flops_per_s=1,
    step_s=10 * MS,
)
SMALL = msgspec.structs.replace(H200_PLAN, num_pages=1001, max_num_seqs=8, max_prefill_tokens=256)


def simulate(trace: Trace, plan: ServePlan = SMALL, cost: CostModel = H200_QWEN3_4B) -> Report:
    return Simulation(Qwen3Scheduler, plan, cost).run(trace)


def arrival(at_s: float, num_tokens: int, max_tokens: int, first: int = 0) -> Arrival:
    prompt = list(range(first, first + num_tokens))
    return Arrival(at_s=at_s, prompt_token_ids=prompt, max_tokens=max_tokens)


def closed(seed: int = 1) -> ClosedTrace:
    return ClosedTrace(
        num_requests=12, concurrency=4, input_tokens=100, output_tokens=20, seed=seed
    )


@pytest.mark.parametrize("ahead", [False, True])
def test_one_request_takes_a_step_a_token(ahead: bool) -> None:
    way = FrontEndCost(request_s=3 * MS, response_s=2 * MS, serial_s=1 * MS)
    simulation = Simulation(Qwen3Scheduler, SMALL, EVEN, way, ahead=ahead)
    report = simulation.run(OpenTrace([arrival(1.0, 40, 5)]))
    assert report.ttft.mean == pytest.approx(15)  # the way in, a step, the way out
    assert report.queue.mean == pytest.approx(3)
    assert (report.tpot.mean, report.itl.p99) == pytest.approx((10, 10))
    assert (report.num_steps, report.output_tokens) == (5, 5)
    assert report.duration_s == pytest.approx(0.055)
    assert report.output_tokens_per_s == pytest.approx(5 / 0.055)


def test_host_time_is_hidden_only_when_steps_are_launched_ahead() -> None:
    cost = msgspec.structs.replace(EVEN, pack_s=4 * MS)
    itl = {
        ahead: Simulation(Qwen3Scheduler, SMALL, cost, ahead=ahead)
        .run(OpenTrace([arrival(0.0, 40, 9)]))
        .itl
        for ahead in (False, True)
    }
    assert itl[True].mean == pytest.approx(10)
    assert itl[False].mean == pytest.approx(14)


def test_a_launch_that_takes_longer_than_the_device_bounds_the_step() -> None:
    cost = msgspec.structs.replace(EVEN, launch_s=25 * MS)
    report = simulate(OpenTrace([arrival(0.0, 40, 2)]), cost=cost)
    assert report.ttft.mean == pytest.approx(25)
    recorded = msgspec.structs.replace(cost, recorded_prompt_tokens=40, recorded_prompts=1)
    assert simulate(OpenTrace([arrival(0.0, 40, 2)]), cost=recorded).ttft.mean == pytest.approx(10)


def test_requests_enter_the_front_end_one_by_one() -> None:
    way = FrontEndCost(request_s=4 * MS, serial_s=3 * MS)
    simulation = Simulation(Qwen3Scheduler, SMALL, EVEN, way, ahead=False)
    simulation.run(OpenTrace([arrival(0.0, 8, 1, first=100 * i) for i in range(3)]))
    # At 4, 7 and 10 ms; the second and the third are there when the first's step ends.
    assert [a.event_s[0] for a in simulation.answers] == pytest.approx([0.014, 0.024, 0.024])


def test_costs_are_bytes_and_flops_over_rates() -> None:
    cost = msgspec.structs.replace(
        EVEN,
        weight_bytes=3,
        flops_per_token=2,
        kv_bytes_per_token=5,
        flops_per_pair=7,
        token_tile=2,
        row_s=0.5,
        token_s=0.25,
        mixed_s=100.0,
        step_s=0.0,
    )
    assert cost.device_s(StepWork.decode(2, 10)) == pytest.approx(5 + 100 + 1 + 0.5)
    # 3 tokens behind 4: 5 + 6 + 7 pairs; products of 4 rows.
    assert StepWork.prefill(4, 3).prefill_pairs == 18
    assert cost.device_s(StepWork.prefill(4, 3)) == pytest.approx(73**0.5 + 126 + 0.5 + 0.75)
    mixed = StepWork(1, 1, 1, 1, 1)
    assert cost.device_s(mixed) == pytest.approx(5 + 5 + 7 + 1 + 0.5 + 100)


def test_equal_seeds_give_equal_reports() -> None:
    assert simulate(closed()) == simulate(closed())
    trace = closed()
    assert simulate(trace) == simulate(trace)  # a trace starts anew
    assert simulate(closed()).num_requests == 12
    chat = {"num_conversations": 3, "per_s": 2.0}
    assert simulate(ConversationTrace.chat(**chat, seed=1)) == simulate(
        ConversationTrace.chat(**chat, seed=1)
    )
    assert simulate(ConversationTrace.chat(**chat, seed=1)) != simulate(
        ConversationTrace.chat(**chat, seed=2)
    )


def test_later_turns_find_what_was_said_before() -> None:
    trace = ConversationTrace(
        num_conversations=3,
        per_s=1.0,
        num_turns=4,
        prefix_tokens=160,
        said_tokens=40,
        answer_tokens=24,
        think_s=0.1,
        seed=3,
    )
    simulation = Simulation(Qwen3Scheduler, SMALL, H200_QWEN3_4B)
    report = simulation.run(trace)
    assert report.num_requests == 12
    talks = {
        client: [a for a in simulation.answers if a.arrival.client == client] for client in range(3)
    }
    for talk in talks.values():
        for before, after in pairwise(talk):
            said = before.arrival.prompt_token_ids + before.token_ids
            assert after.arrival.prompt_token_ids[: len(said)] == said
            assert after.arrival.at_s > before.event_s[-1]
            assert after.cached_tokens >= (len(said) - 1) // 16 * 16
    assert talks[1][0].cached_tokens == 160  # the others' prefix
    assert 0.5 < report.prefix_hit_rate < 1
    without = Simulation(Qwen3Scheduler, SMALL, H200_QWEN3_4B, prefix_cache=False).run(trace)
    assert without.prefix_hit_rate == 0
    assert without.ttft.mean > report.ttft.mean


def talks_in_few_pages(host: HostTierCost | None, seed: int = 4) -> Report:
    """Eight talks of which two stay on the device between their turns."""

    def make(
        runner: ModelRunner, kv: KvManager, plan: ServePlan, *, clock: Callable[[], float]
    ) -> Qwen3Scheduler:
        assert isinstance(runner, SimulatedRunner)
        tier = SimulatedHostTier(kv, runner, host) if host else None
        return Qwen3Scheduler(runner, kv, plan, offload=tier, clock=clock)

    trace = ConversationTrace(
        num_conversations=8,
        per_s=100,
        num_turns=4,
        prefix_tokens=20,
        said_tokens=300,
        answer_tokens=8,
        think_s=0.2,
        seed=seed,
    )
    plan = msgspec.structs.replace(SMALL, num_pages=201, max_prefill_tokens=1024)
    return Simulation(make, plan, H200_QWEN3_4B).run(trace)


def test_host_memory_brings_back_what_the_device_gave_up() -> None:
    without = talks_in_few_pages(None)
    restored = talks_in_few_pages(H200_HOST_TIER)
    assert without.restored_rate == 0
    assert restored.restored_rate > 0.15
    assert restored.prefix_hit_rate + restored.restored_rate > without.prefix_hit_rate + 0.15
    assert restored.ttft.mean < without.ttft.mean


def test_slow_host_memory_is_not_waited_for() -> None:
    slow = msgspec.structs.replace(H200_HOST_TIER, page_s=1.0)
    assert talks_in_few_pages(slow) == talks_in_few_pages(None)
    small = msgspec.structs.replace(H200_HOST_TIER, num_pages=40)
    assert (
        talks_in_few_pages(small).restored_rate < talks_in_few_pages(H200_HOST_TIER).restored_rate
    )


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 400), st.sampled_from([1e-6, 1e-4, 2e-4]))
def test_restored_pages_change_no_token(seed: int, num_pages: int, page_s: float) -> None:
    host = HostTierCost(num_pages=num_pages, page_s=page_s, prefill_tokens_per_s=50_000)
    assert talks_in_few_pages(host, seed).num_requests == 32


def test_poisson_arrivals_have_their_rate() -> None:
    trace = OpenTrace.poisson(num_requests=500, per_s=8, input_tokens=1, output_tokens=1, seed=1)
    times = [a.at_s for a in trace.opening()]
    assert times == sorted(times) and times[0] == 0
    assert times[-1] == pytest.approx(500 / 8, rel=0.15)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(20, 60), st.booleans(), st.booleans())
def test_small_pools_preempt_and_change_no_token(
    seed: int, num_pages: int, ahead: bool, prefix_cache: bool
) -> None:
    plan = msgspec.structs.replace(SMALL, num_pages=num_pages)
    trace = ConversationTrace(
        num_conversations=6,
        per_s=50,
        num_turns=2,
        prefix_tokens=20,
        said_tokens=30,
        answer_tokens=30,
        think_s=0.01,
        seed=seed,
    )
    simulation = Simulation(
        Qwen3Scheduler, plan, H200_QWEN3_4B, ahead=ahead, prefix_cache=prefix_cache
    )
    assert simulation.run(trace).num_requests == 12


def test_preemptions_are_counted() -> None:
    # Six start where headroom allows two, as if all had asked for little.
    def eager(runner: ModelRunner, kv: KvManager, plan: ServePlan, **_: object) -> Qwen3Scheduler:
        scheduler = Qwen3Scheduler(runner, kv, plan)
        scheduler._admission._headroom_tokens = 0
        return scheduler

    plan = msgspec.structs.replace(SMALL, num_pages=21)
    trace = OpenTrace([arrival(0.0, 40, 60, first=100 * i) for i in range(6)])
    assert Simulation(eager, plan, H200_QWEN3_4B).run(trace).num_preemptions > 0


class Lying(Qwen3Scheduler):
    """A scheduler with one fault."""

    def __init__(self, runner: ModelRunner, kv: KvManager, plan: ServePlan, fault: str) -> None:
        super().__init__(runner, kv, plan)
        self.fault = fault
        self.num_steps = 0

    def step(self, ledger: Ledger) -> None:
        self.num_steps += 1
        running = list(self._requests.running)
        if self.fault == "stalls" and self.num_steps > 3:
            return
        if self.fault == "swaps pages" and len(running) > 1 and self.num_steps == 3:
            one, two = running[0].page_ids, running[1].page_ids
            one[0], two[0] = two[0], one[0]
        if self.fault == "keeps a page" and self.num_steps == 3:
            self._kv.pool.allocate(1)
        super().step(ledger)

    def submit(self, request: GenerateRequest, ledger: Ledger) -> None:
        if self.fault == "aborts" and request.request_id == 2:
            ledger.abort(2)
            return
        if self.fault == "cuts a prompt":
            cut = request.prompt_token_ids[1:]
            request = msgspec.structs.replace(request, prompt_token_ids=cut)
        super().submit(request, ledger)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("stalls", "wait for no step"),
        ("swaps pages", "do not follow each other"),
        ("cuts a prompt", "40 tokens of 40, 40 of them wrong"),
        ("keeps a page", "left at the end"),
        ("aborts", "not at its full length"),
    ],
)
def test_faults_of_a_scheduler_are_found(fault: str, message: str) -> None:
    def make(runner: ModelRunner, kv: KvManager, plan: ServePlan, **_: object) -> Lying:
        return Lying(runner, kv, plan, fault)

    trace = OpenTrace([arrival(0.0, 40, 40, first=100 * i) for i in range(3)])
    with pytest.raises(SimulationError, match=message):
        Simulation(make, SMALL, H200_QWEN3_4B).run(trace)


def test_a_request_that_can_never_fit_is_an_error() -> None:
    with pytest.raises(SimulationError, match="ended with Rejected"):
        simulate(OpenTrace([arrival(0.0, 40, 40_000)]))


def test_a_plan_without_pages_is_refused() -> None:
    plan = msgspec.structs.replace(SMALL, num_pages=None)
    with pytest.raises(ValueError, match="needs num_pages"):
        Simulation(Qwen3Scheduler, plan, EVEN)
