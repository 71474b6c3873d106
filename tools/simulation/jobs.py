"""One simulation of Qwen3-4B on an H200, and many of them on all cores."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec
from pegainfer_qwen3.scheduler import Qwen3Scheduler

from pegainfer_core.testing import (
    H200_FRONT_END,
    H200_HOST_TIER,
    H200_PLAN,
    H200_QWEN3_4B,
    SimulatedHostTier,
    SimulatedRunner,
    Simulation,
)
from simulation.loads import load
from simulation.policies import in_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pegainfer_core.contract import ServePlan
    from pegainfer_core.engine import ModelRunner
    from pegainfer_core.kv import KvManager
    from pegainfer_core.testing import CostModel, Report

COST_MODELS: Final[dict[str, CostModel]] = {
    "fitted": H200_QWEN3_4B,
    # Fits nearly as well: less beside decoding rows, more for prompts themselves.
    "second": msgspec.structs.replace(
        H200_QWEN3_4B, token_tile=256, mixed_s=1e-3, flops_per_s=715e12
    ),
}


class Job(msgspec.Struct, frozen=True):
    """One simulation; crosses processes."""

    load: str
    policy: str = "present"
    sharing: str = "half"
    cost: str = "fitted"
    seed: int | None = None
    num_pages: int | None = None
    max_num_seqs: int = H200_PLAN.max_num_seqs
    max_prefill_tokens: int = H200_PLAN.max_prefill_tokens
    reserve: Literal["on-demand", "worst-case"] = "on-demand"
    headroom_tokens: int | None = None
    host_tier: bool = False

    @property
    def plan(self) -> ServePlan:
        """The engine's limits."""
        return msgspec.structs.replace(
            H200_PLAN,
            num_pages=self.num_pages or H200_PLAN.num_pages,
            max_num_seqs=self.max_num_seqs,
            max_prefill_tokens=self.max_prefill_tokens,
        )

    def scheduler(
        self, runner: ModelRunner, kv: KvManager, plan: ServePlan, *, clock: Callable[[], float]
    ) -> Qwen3Scheduler:
        """The engine's scheduler, with the job's headroom and tier."""
        offload = None
        if self.host_tier and isinstance(runner, SimulatedRunner):
            offload = SimulatedHostTier(kv, runner, H200_HOST_TIER)
        scheduler = Qwen3Scheduler(runner, kv, plan, self.reserve, offload=offload, clock=clock)
        if self.headroom_tokens is not None:
            scheduler._admission._headroom_tokens = self.headroom_tokens
        return scheduler


class Heard(NamedTuple):
    """When a client's pieces came, in seconds."""

    prompt_tokens: int
    sent_s: float
    event_s: list[float]


class Outcome(NamedTuple):
    """A simulation's figures, and what each client heard, in order of arrival."""

    report: Report
    heard: list[Heard]


def simulate(job: Job) -> Outcome:
    """Run one."""
    with in_place(job.policy, job.sharing):
        simulation = Simulation(job.scheduler, job.plan, COST_MODELS[job.cost], H200_FRONT_END)
        report = simulation.run(load(job.load, job.seed))
    heard = [
        Heard(len(a.arrival.prompt_token_ids), a.arrival.at_s, a.event_s)
        for a in simulation.answers
    ]
    return Outcome(report, heard)


def simulate_all(jobs: Iterable[Job]) -> dict[Job, Outcome]:
    """Run many, on all cores."""
    jobs = list(jobs)
    if len(jobs) == 1:
        return {jobs[0]: simulate(jobs[0])}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(jobs, pool.map(simulate, jobs), strict=True))
