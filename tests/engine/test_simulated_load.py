"""The real scheduler under simulated load: pressure, fairness and gaps between tokens.

Every simulation also checks each token, each end, and that all pages come back.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pegainfer_qwen3.scheduler import Qwen3Scheduler

from pegainfer_core.engine import StepWork
from pegainfer_core.testing import (
    H200_FRONT_END,
    H200_PLAN,
    H200_QWEN3_4B,
    Arrival,
    CostModel,
    OpenTrace,
    Report,
    Simulation,
    Trace,
)
from pegainfer_core.testing.simulator import StepCost

if TYPE_CHECKING:
    from pegainfer_core.testing.simulator.simulated_answer import SimulatedAnswer

#: A device a twelfth as fast: two requests a second are then many.
SLOW = msgspec.structs.replace(
    H200_QWEN3_4B, flops_per_s=62e12, attention_flops_per_s=43e12, weight_bytes_per_s=0.35e12
)


class Served(NamedTuple):
    """A load that was served to its end."""

    report: Report
    answers: list[SimulatedAnswer]

    def first_tokens_ms(self, prompt_tokens: int) -> list[float]:
        return [
            1e3 * (a.event_s[0] - a.arrival.at_s)
            for a in self.answers
            if len(a.arrival.prompt_token_ids) == prompt_tokens
        ]

    def gap_p99_ms(self, most_prompt_tokens: int) -> float:
        """Between the tokens of short prompts."""
        gaps = [
            after - before
            for a in self.answers
            if len(a.arrival.prompt_token_ids) <= most_prompt_tokens
            for before, after in pairwise(a.event_s)
        ]
        return 1e3 * float(np.percentile(gaps, 99))


def served(
    trace: Trace,
    cost: CostModel = H200_QWEN3_4B,
    reserve: Literal["on-demand", "worst-case"] = "on-demand",
    **limits: object,
) -> Served:
    def make(*parts: object, clock: object) -> Qwen3Scheduler:
        return Qwen3Scheduler(*parts, reserve, clock=clock)  # type: ignore[arg-type]

    plan = msgspec.structs.replace(H200_PLAN, **limits)
    simulation = Simulation(make, plan, cost, H200_FRONT_END)
    return Served(simulation.run(trace), simulation.answers)


@pytest.mark.parametrize("reserve", ["on-demand", "worst-case"])
def test_long_prompts_at_two_a_second_end_in_a_small_pool(
    reserve: Literal["on-demand", "worst-case"],
) -> None:
    num_requests = 150 if reserve == "on-demand" else 80
    trace = OpenTrace.poisson(
        num_requests=num_requests,
        per_s=2,
        input_tokens=2048,
        output_tokens=128,
        seed=25,
        spread=0.5,
    )
    # The longest request takes 200 pages.
    report = served(trace, cost=SLOW, reserve=reserve, num_pages=620).report
    assert report.num_requests == num_requests
    assert report.queue.p99 > 1000  # they did wait for pages
    assert report.max_rows <= 7
    if reserve == "worst-case":
        assert report.num_preemptions == 0


def test_chats_without_a_limit_run_side_by_side() -> None:
    def chats() -> OpenTrace:
        return OpenTrace.poisson(
            num_requests=256,
            per_s=inf,
            input_tokens=150,
            output_tokens=60,
            seed=1,
            spread=0.5,
            has_limit=False,
        )

    on_demand, worst_case = served(chats()), served(chats(), reserve="worst-case")
    assert on_demand.report.max_rows >= 200
    assert on_demand.report.num_preemptions == 0
    assert worst_case.report.max_rows == 49_000 // 2560  # pages of a full context
    assert on_demand.report.duration_s < 0.3 * worst_case.report.duration_s


any_arrival = st.builds(
    lambda at_s, stem, num_tokens, max_tokens, has_limit, priority: Arrival(
        at_s=at_s,
        prompt_token_ids=[stem] * num_tokens,
        max_tokens=max_tokens,
        has_limit=has_limit,
        priority=priority,
    ),
    st.floats(0, 0.5),
    st.integers(0, 3),
    # With the longest answer and the token that ends it, as long as the model's context.
    st.integers(1, 99),
    st.integers(1, 28),
    st.booleans(),
    st.sampled_from([0, 0, 0, -1, 3]),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(any_arrival, min_size=1, max_size=25),
    st.integers(9, 40),
    st.integers(1, 6),
    st.sampled_from([1, 7, 64, 512]),
    st.sampled_from([None, 0.002, 0.01]),
    st.sampled_from(["on-demand", "on-demand", "worst-case"]),
)
def test_any_load_ends_in_any_pool(
    arrivals: list[Arrival],
    num_pages: int,
    max_num_seqs: int,
    max_prefill_tokens: int,
    itl_target_s: float | None,
    reserve: Literal["on-demand", "worst-case"],
) -> None:
    """Pools of 8 pages and more; a request takes up to 8."""
    done = served(
        OpenTrace(arrivals),
        reserve=reserve,
        num_pages=num_pages,
        max_model_len=128,
        max_num_seqs=max_num_seqs,
        max_prefill_tokens=max_prefill_tokens,
        itl_target_s=itl_target_s,
    )
    assert done.report.num_requests == len(arrivals)


def test_a_prompt_too_large_for_now_neither_blocks_nor_starves() -> None:
    """The pool holds 100 pages: a long answer has 40 of them, one prompt needs 80."""
    one = Arrival(at_s=0.0, prompt_token_ids=[1] * 16, max_tokens=620, client=0)
    large = Arrival(at_s=0.01, prompt_token_ids=[2] * 1264, max_tokens=1, client=1)
    small = [
        Arrival(at_s=0.02 + 0.004 * i, prompt_token_ids=[3 + i] * 16, max_tokens=4, client=2 + i)
        for i in range(600)
    ]
    done = served(OpenTrace([one, large, *small]), num_pages=101)
    firsts = [a.event_s[0] - a.arrival.at_s for a in done.answers]
    assert max(firsts[2:52]) < 0.05  # passed it at once
    ended_s = done.answers[0].event_s[-1]
    assert done.answers[1].event_s[0] < ended_s + 0.1  # got the room when it was there
    assert max(firsts[2:]) < ended_s + 0.1  # and all behind it went on


@pytest.mark.parametrize("itl_target_s", [None, 0.02])
def test_short_prompts_stay_quick_beside_long_ones(itl_target_s: float | None) -> None:
    short = OpenTrace.poisson(num_requests=48, per_s=8, input_tokens=1024, output_tokens=64, seed=3)
    trace = OpenTrace.injected(
        short, input_tokens=[32_768] * 3, output_tokens=8, every_s=1.9, seed=4
    )
    beside = served(trace, itl_target_s=itl_target_s)
    lone = served(short, itl_target_s=itl_target_s)
    long = OpenTrace.injected(
        OpenTrace([]), input_tokens=[32_768], output_tokens=8, every_s=0, seed=4
    )
    [alone_ms] = served(long).first_tokens_ms(32_768)
    # A short prompt gets half of every step; most of its wait is for the step under way.
    assert np.mean(beside.first_tokens_ms(1024)) < 5 * np.mean(lone.first_tokens_ms(1024))
    assert max(beside.first_tokens_ms(1024)) < 0.6 * alone_ms
    # And the long one at least half of every step.
    assert max(beside.first_tokens_ms(32_768)) < 2.5 * alone_ms


def streams_and_prompts(num_streams: int = 16) -> OpenTrace:
    streams = OpenTrace.poisson(
        num_requests=num_streams, per_s=inf, input_tokens=64, output_tokens=900, seed=5
    )
    return OpenTrace.injected(
        streams, input_tokens=[8192, 32_768, 8192], output_tokens=4, every_s=0.8, seed=6
    )


class Jittery(CostModel, frozen=True, kw_only=True):
    """The same device with steps that take up to 20 % longer, and now and then thrice as long."""

    def cost(self, work: StepWork) -> StepCost:
        cost = super().cost(work)
        draw = hash((work, 7)) % 1000 / 1000
        factor = 3.0 if draw > 0.998 else 1.0 + 0.2 * draw
        return cost._replace(device_s=factor * cost.device_s)


JITTERY = Jittery(**msgspec.structs.asdict(H200_QWEN3_4B))


@pytest.mark.parametrize("target_ms", [15, 20, 40])
@pytest.mark.parametrize("cost", [H200_QWEN3_4B, JITTERY], ids=["even", "jittery"])
def test_a_target_holds_the_gaps_of_streams(target_ms: int, cost: CostModel) -> None:
    held = served(streams_and_prompts(), cost=cost, itl_target_s=target_ms / 1e3)
    assert held.gap_p99_ms(64) <= target_ms
    # All prompts came while the streams ran: nobody was spared by waiting.
    until_s = min(a.event_s[-1] for a in held.answers[:16])
    assert all(a.event_s[0] < until_s for a in held.answers[16:])
    if target_ms == 40:
        plain = served(streams_and_prompts(), cost=cost)
        assert plain.gap_p99_ms(64) > target_ms


def test_streams_that_fill_every_slot_keep_prompts_waiting() -> None:
    """Such a load says nothing on an engine with as many slots as streams: its gaps look best."""
    full = served(streams_and_prompts(), max_num_seqs=16)
    assert full.gap_p99_ms(64) < 5
    until_s = min(a.event_s[-1] for a in full.answers[:16])
    assert all(a.event_s[0] > until_s for a in full.answers[16:])


def test_a_chunked_prompt_goes_on_when_the_last_stream_ends() -> None:
    stream = Arrival(at_s=0.0, prompt_token_ids=[1] * 16, max_tokens=3, client=0)
    long = Arrival(at_s=0.0, prompt_token_ids=[2] * 6000, max_tokens=2, client=1)
    for itl_target_s in (None, 0.008):
        done = served(OpenTrace([stream, long]), max_prefill_tokens=1024, itl_target_s=itl_target_s)
        first, second = done.answers
        assert second.event_s[0] > first.event_s[-1]
        assert done.report.busy > 0.5
