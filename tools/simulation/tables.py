"""The tables that `tools/simulate.py` prints: one function each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from simulation.jobs import COST_MODELS, Heard, Job, simulate_all
from simulation.loads import ALL, CLOSED, POISSON
from simulation.measured import SERVING, STEPS_MS
from simulation.policies import POLICIES, SHARING, TARGETS_MS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pegainfer_core.testing import Report

_MIXED: Final = "mixed32"
_LONG_SHORT: Final = "long8"
_CHATS: Final = "chats256"
_SATURATED: Final = ("poisson64", "poisson96", "c256")


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


def heading(title: str, columns: Sequence[str]) -> None:
    """First lines of a table."""
    print(f"\n| {title} | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")


def row(title: str, values: Sequence[float | str]) -> None:
    """A line of a table."""
    cells = [value if isinstance(value, str) else shown(value) for value in values]
    print(f"| {title} | {' | '.join(cells)} |")


def validate(args: argparse.Namespace) -> None:
    """Simulated beside measured."""
    names = args.loads or list(SERVING)
    jobs = [Job(name, cost=args.cost) for name in names if name in SERVING]
    outcomes = simulate_all(jobs)
    print("| load | figure | measured | simulated | off by |\n|---|---|---|---|---|")
    for job in jobs:
        found = figures(outcomes[job].report)
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
    """One table a load: chunk policies."""
    loads = args.loads or [*CLOSED, *POISSON]
    chosen = args.policy or [name for name in POLICIES if name != "whole"]
    jobs = {
        (name, policy): Job(name, policy, cost=args.cost, seed=args.seed, num_pages=args.pages)
        for name in loads
        for policy in chosen
    }
    outcomes = simulate_all(jobs.values())
    columns = ("TPOT", "TTFT", "ITL p99", "tok/s")
    for name in loads:
        heading(name, columns)
        for policy in chosen:
            found = figures(outcomes[jobs[name, policy]].report)
            row(policy, [found[column] for column in columns])


def mixed(args: argparse.Namespace) -> None:
    """Long prompts injected into 32 streams: what the streams notice, by chunk policy.

    Raises:
        RuntimeError: A prompt was not computed beside the streams, so the row would say nothing.
    """
    chosen = args.policy or ["whole", "limit", "2048", "present", "512", *TARGETS_MS]
    jobs = {
        policy: Job(_MIXED, policy, max_prefill_tokens=40_960 if policy == "whole" else 8192)
        for policy in chosen
    }
    outcomes = simulate_all(jobs.values())
    names = ("ITL p50", "ITL p99", "ITL max", "TPOT", "TTFT of 8k", "TTFT of 32k")
    heading("32 streams, prompts of 8k and 32k", names)
    for policy, job in jobs.items():
        row(policy, _mixed_row(outcomes[job].heard))


def sharing(args: argparse.Namespace) -> None:
    """32k prompts beside a stream of 1k prompts: first tokens, by how chunks are shared out."""
    jobs = {
        (how, policy): Job(_LONG_SHORT, policy, how)
        for policy in args.policy or ("present", "itl-20")
        for how in SHARING
    }
    outcomes = simulate_all(jobs.values())
    heading("sharing, budget", ("1k: TTFT mean", "1k: TTFT p99", "32k: TTFT mean", "ITL p99"))
    for (how, policy), job in jobs.items():
        report, heard = outcomes[job]
        short = _first_tokens_ms(heard, 1024)
        long = _first_tokens_ms(heard, 32_768)
        values = [np.mean(short), np.percentile(short, 99), np.mean(long), report.itl.p99]
        row(f"{how}, {policy}", [float(value) for value in values])


def reserve(args: argparse.Namespace) -> None:
    """Chats that set no limit, by how pages are reserved."""
    pages = [args.pages] if args.pages else [None, 6000]
    jobs = [
        Job(_CHATS, num_pages=num_pages, reserve=how, headroom_tokens=headroom)
        for num_pages in pages
        for how, headroom in (
            ("worst-case", None),
            ("on-demand", 0),
            ("on-demand", 128),
            ("on-demand", None),
            ("on-demand", 2048),
        )
    ]
    outcomes = simulate_all(jobs)
    names = ("most at once", "TTFT", "TTFT p99", "TPOT", "ITL p99", "tok/s", "preemptions")
    heading("256 chats without a limit", names)
    for job in jobs:
        report = outcomes[job].report
        headroom = 512 if job.headroom_tokens is None else job.headroom_tokens
        room = "" if job.reserve == "worst-case" else f", headroom {headroom}"
        found = figures(report)
        row(
            f"{job.plan.num_pages:,} pages, {job.reserve}{room}",
            [
                str(report.max_rows),
                *[found[name] for name in ("TTFT", "TTFT p99", "TPOT", "ITL p99", "tok/s")],
                str(report.num_preemptions),
            ],
        )


def offload(args: argparse.Namespace) -> None:
    """Talks whose prefixes do not all stay on the device, without and with host memory behind."""
    jobs = [
        Job(name, num_pages=num_pages, host_tier=host_tier)
        for name, num_pages in (("agents2", 12_000), ("chat32", 12_000))
        for num_pages in ([args.pages] if args.pages else [None, num_pages])
        for host_tier in (False, True)
    ]
    outcomes = simulate_all(jobs)
    names = ("TTFT", "TTFT p99", "ITL p99", "tok/s", "found on the device %", "restored %")
    heading("load, pages", names)
    for job in jobs:
        report = outcomes[job].report
        found = figures(report)
        row(
            f"{job.load}, {job.plan.num_pages:,}{' and host' if job.host_tier else ''}",
            [
                *[found[name] for name in ("TTFT", "TTFT p99", "ITL p99", "tok/s")],
                f"{100 * report.prefix_hit_rate:.0f}",
                f"{100 * report.restored_rate:.0f}",
            ],
        )


def seats(args: argparse.Namespace) -> None:
    """Loads at saturation, by most requests at once and two chunk policies."""
    jobs = [
        Job(name, policy, max_num_seqs=count)
        for name in args.loads or _SATURATED
        for policy in args.policy or ("present", "many-4096")
        for count in (256, 384, 512, 1024)
    ]
    outcomes = simulate_all(jobs)
    columns = ("TTFT", "TTFT p99", "TPOT", "ITL p99", "tok/s")
    heading("load, policy, requests at once", columns)
    for job in jobs:
        found = figures(outcomes[job].report)
        row(f"{job.load}, {job.policy}, {job.max_num_seqs}", [found[name] for name in columns])


def run(args: argparse.Namespace) -> None:
    """One report a load."""
    [policy] = args.policy or ["present"]
    jobs = [
        Job(name, policy, cost=args.cost, seed=args.seed, num_pages=args.pages)
        for name in args.loads or ALL
    ]
    for job, (report, _) in simulate_all(jobs).items():
        found = ", ".join(f"{name} {shown(value)}" for name, value in figures(report).items())
        print(
            f"{job.load}: {report.num_requests} requests in {report.duration_s:.1f} s, {found}, "
            f"queue {shown(report.queue.mean)}, prefix hits {100 * report.prefix_hit_rate:.0f} %, "
            f"{report.num_preemptions} preemptions, {report.num_steps} steps, at most "
            f"{report.max_rows} requests in one, device busy {100 * report.busy:.0f} %"
        )


TABLES: Final = {
    "validate": validate,
    "steps": steps,
    "policies": policies,
    "mixed": mixed,
    "sharing": sharing,
    "reserve": reserve,
    "offload": offload,
    "seats": seats,
    "run": run,
}


def _mixed_row(heard: list[Heard]) -> list[float]:
    streams = [one for one in heard if one.prompt_tokens < 1024]
    injected = [one for one in heard if one.prompt_tokens >= 1024]
    until_s = min(one.event_s[-1] for one in streams)
    if not injected or max(one.event_s[0] for one in injected) > until_s:
        raise RuntimeError("a prompt was computed when the streams had ended: nobody noticed it")
    gaps_ms = 1e3 * np.concatenate([np.diff(one.event_s) for one in streams])
    return [
        *(float(value) for value in np.percentile(gaps_ms, (50, 99, 100))),
        float(gaps_ms.mean()),
        *(float(np.mean(_first_tokens_ms(injected, size))) for size in (8192, 32_768)),
    ]


def _first_tokens_ms(heard: list[Heard], prompt_tokens: int) -> list[float]:
    chosen = [one for one in heard if one.prompt_tokens == prompt_tokens]
    return [1e3 * (one.event_s[0] - one.sent_s) for one in chosen]
