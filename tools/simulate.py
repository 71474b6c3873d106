"""Simulates the engine under load on the CPU: the real scheduler and pages, a device of costs.

`simulate.py validate [LOAD ...]` holds simulated against measured figures, `steps` the cost model
against measured steps, `policies [LOAD ...]` compares chunk policies, `run [LOAD ...]` reports.
Loads: c8 to c256, poisson16 to poisson96, chat16, chat32, agents1, agents2, or other numbers.
Model and device are Qwen3-4B on one H200; every run checks all tokens and pages.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

import msgspec
from pegainfer_qwen3.scheduler import Qwen3Scheduler
from simulation.loads import ALL, CLOSED, POISSON, load
from simulation.measured import SERVING, STEPS_MS
from simulation.policies import POLICIES, TARGETS_MS, in_place

from pegainfer_core.testing import H200_FRONT_END, H200_PLAN, H200_QWEN3_4B, Simulation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pegainfer_core.testing import CostModel, Report

COST_MODELS: dict[str, CostModel] = {
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
    cost: str = "fitted"
    seed: int | None = None
    num_pages: int | None = None


def simulate(job: Job) -> Report:
    """Run one."""
    plan = msgspec.structs.replace(H200_PLAN, num_pages=job.num_pages or H200_PLAN.num_pages)
    with in_place(job.policy):
        simulation = Simulation(Qwen3Scheduler, plan, COST_MODELS[job.cost], H200_FRONT_END)
        return simulation.run(load(job.load, job.seed))


def simulate_all(jobs: Iterable[Job]) -> dict[Job, Report]:
    """Run many, on all cores."""
    jobs = list(jobs)
    if len(jobs) == 1:
        return {jobs[0]: simulate(jobs[0])}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(jobs, pool.map(simulate, jobs), strict=True))


def figures(report: Report) -> dict[str, float]:
    """By the headings of the benchmark pages."""
    return {
        "TTFT": report.ttft.mean,
        "TTFT p99": report.ttft.p99,
        "TPOT": report.tpot.mean,
        "ITL p50": report.itl.p50,
        "ITL p99": report.itl.p99,
        "tok/s": report.output_tokens_per_s,
    }


def shown(value: float) -> str:
    """Three digits."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"


def validate(args: argparse.Namespace) -> None:
    """Simulated beside measured."""
    names = args.loads or list(SERVING)
    jobs = [Job(name, cost=args.cost) for name in names if name in SERVING]
    reports = simulate_all(jobs)
    print("| load | figure | measured | simulated | off by |\n|---|---|---|---|---|")
    for job in jobs:
        found = figures(reports[job])
        for figure, measured in SERVING[job.load].items():
            off = f"{100 * (found[figure] / measured - 1):+.0f} %"
            print(f"| {job.load} | {figure} | {shown(measured)} | {shown(found[figure])} | {off} |")


def steps(args: argparse.Namespace) -> None:
    """The cost model beside measured steps."""
    print("| step | measured ms | model ms | off by |\n|---|---|---|---|")
    for name, (work, measured_ms) in STEPS_MS.items():
        model_ms = COST_MODELS[args.cost].device_s(work) * 1e3
        off = f"{100 * (model_ms / measured_ms - 1):+.0f} %"
        print(f"| {name} | {shown(measured_ms)} | {shown(model_ms)} | {off} |")


def policies(args: argparse.Namespace) -> None:
    """One table a load: the policies."""
    loads = args.loads or [*CLOSED, *POISSON]
    chosen = args.policy or list(POLICIES)
    reports = simulate_all(
        Job(name, policy, args.cost, args.seed, args.pages) for name in loads for policy in chosen
    )
    columns = ("TPOT", "TTFT", "ITL p99", "tok/s")
    for name in loads:
        print(f"\n| {name} | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
        for policy in chosen:
            found = figures(reports[Job(name, policy, args.cost, args.seed, args.pages)])
            print(f"| {policy} | {' | '.join(shown(found[c]) for c in columns)} |")


def run(args: argparse.Namespace) -> None:
    """One report a load."""
    jobs = [Job(name, "present", args.cost, args.seed, args.pages) for name in args.loads or ALL]
    for job, report in simulate_all(jobs).items():
        found = ", ".join(f"{name} {shown(value)}" for name, value in figures(report).items())
        print(
            f"{job.load}: {report.num_requests} requests in {report.duration_s:.1f} s, {found}, "
            f"queue {shown(report.queue.mean)}, prefix hits {100 * report.prefix_hit_rate:.0f} %, "
            f"{report.num_preemptions} preemptions, {report.num_steps} steps, device busy "
            f"{100 * report.busy:.0f} %"
        )


COMMANDS = {"validate": validate, "steps": steps, "policies": policies, "run": run}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("loads", nargs="*", metavar="LOAD")
    parser.add_argument(
        "--policy", action="append", choices=[*POLICIES, *TARGETS_MS], help="repeat for several"
    )
    parser.add_argument("--cost", choices=COST_MODELS, default="fitted", help="cost model")
    parser.add_argument("--seed", type=int, help="of the load (default: the measured row's)")
    parser.add_argument("--pages", type=int, help="KV pages (default: an H200's)")
    args = parser.parse_args()
    for name in args.loads:
        try:
            load(name)
        except ValueError as error:
            parser.error(str(error))
    started = time.perf_counter()
    COMMANDS[args.command](args)
    print(f"took {time.perf_counter() - started:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
