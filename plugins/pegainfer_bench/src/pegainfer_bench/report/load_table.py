"""A run's report as a table, with the headings that `vllm bench serve` prints."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pegainfer_bench.report.load_report import METRICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_bench.report.load_report import LoadReport

_WIDTH: Final = 50
_LABEL_WIDTH: Final = 40
_MAX_ERRORS: Final = 5


def load_table(report: LoadReport, metrics: Sequence[str]) -> str:
    """The table.

    Args:
        report: Of a run.
        metrics: Latencies to show, keys of `METRICS`.
    """
    lines = [" Serving Benchmark Result ".center(_WIDTH, "=")]
    lines += [_row(label, value) for label, value in _counts(report) if value is not None]
    summaries = report.summaries()
    for name in metrics:
        heading, short = METRICS[name]
        summary = summaries[name]
        lines.append(heading.center(_WIDTH, "-"))
        lines.append(_row(f"Mean {short} (ms):", summary.mean))
        lines.append(_row(f"Median {short} (ms):", summary.median))
        lines += [_row(f"P{p:g} {short} (ms):", v) for p, v in summary.percentiles.items()]
    lines.append("=" * _WIDTH)
    return "\n".join([*lines, *_remarks(report)])


def _counts(report: LoadReport) -> list[tuple[str, object]]:
    totals, facts = report.totals(), report.facts
    rate = facts.get("request_rate")
    return [
        ("Successful requests:", totals["completed"]),
        ("Failed requests:", totals["failed"]),
        ("Maximum request concurrency:", facts.get("max_concurrency")),
        ("Request rate configured (RPS):", None if rate == "inf" else rate),
        ("Benchmark duration (s):", totals["duration"]),
        ("Total input tokens:", totals["total_input_tokens"]),
        ("Total cached input tokens:", totals["total_cached_tokens"] or None),
        ("Total generated tokens:", totals["total_output_tokens"]),
        ("Request throughput (req/s):", totals["request_throughput"]),
        ("Request goodput (req/s):", totals["request_goodput"]),
        ("Output token throughput (tok/s):", totals["output_throughput"]),
        ("Peak output token throughput (tok/s):", totals["max_output_tokens_per_s"]),
        ("Peak concurrent requests:", totals["max_concurrent_requests"]),
        ("Total token throughput (tok/s):", totals["total_token_throughput"]),
    ]


def _row(label: str, value: object) -> str:
    if isinstance(value, float):
        text = "-" if math.isnan(value) else f"{value:.2f}"
    else:
        text = str(value)
    return f"{label:<{_LABEL_WIDTH}} {text}"


def _remarks(report: LoadReport) -> list[str]:
    """What a reader of the figures must know."""
    lines = []
    errors = report.errors
    for error, count in errors[:_MAX_ERRORS]:
        lines.append(f"failed ({count}): {error}")
    if len(errors) > _MAX_ERRORS:
        lines.append(f"failed otherwise: {sum(count for _, count in errors[_MAX_ERRORS:])}")
    short = report.short
    if short:
        first = short[0]
        lines.append(
            f"{len(short)} requests got fewer tokens than asked for; the first of them "
            f"{first.output_tokens} of {first.asked_tokens}"
        )
    without = report.totals()["without_usage"]
    if without:
        lines.append(f"{without} answers held no usage: their events were counted as tokens")
    return lines
