"""Totals, peaks, goodput, what a table says of failures."""

from __future__ import annotations

import math

import pytest
from pegainfer_bench.client import LoadRun, Outcome
from pegainfer_bench.report import LoadReport, load_table, parse_goodput

from pegainfer_core.plugin import CommandFault


def outcome(sent_s: float, events_s: list[float], tokens: int, asked: int | None = None) -> Outcome:
    return Outcome(
        asked_tokens=tokens if asked is None else asked,
        sent_s=sent_s,
        event_times_s=events_s,
        prompt_tokens=10,
        output_tokens=tokens,
        has_usage=True,
    )


RUN = LoadRun(
    [
        outcome(0.0, [0.1, 0.2, 0.4], 4),
        outcome(0.3, [0.5], 1, asked=3),
        outcome(0.4, [1.4, 1.6, 1.8], 3),
        Outcome(asked_tokens=2, error="HTTP 500: boom"),
    ],
    2.0,
)


def test_totals() -> None:
    totals = LoadReport({}, RUN, [99]).totals()
    assert totals["completed"] == 3 and totals["failed"] == 1 and totals["short"] == 1
    assert totals["total_input_tokens"] == 30 and totals["total_output_tokens"] == 8
    assert totals["output_throughput"] == 4.0 and totals["total_token_throughput"] == 19.0
    assert totals["request_throughput"] == 1.5 and totals["request_goodput"] is None
    # At 0.4 s the first ends just when the third is sent; the second is under way.
    assert totals["max_concurrent_requests"] == 2
    # From 0.5 to 1.5 s (the end not counted): one and one; from 0.1 to 1.1: five.
    assert totals["max_output_tokens_per_s"] == pytest.approx(4 + 1)


def test_the_peak_is_that_of_any_second() -> None:
    run = LoadRun([outcome(0.0, [0.9 + 0.1 * n for n in range(20)], 40)], 3.0)
    # Ten events of two tokens within a second, wherever it begins.
    assert LoadReport({}, run, []).totals()["max_output_tokens_per_s"] == pytest.approx(20, abs=2)


def test_latencies() -> None:
    summaries = LoadReport({}, RUN, [100]).summaries()
    assert summaries["ttft"].mean == pytest.approx((100 + 200 + 1000) / 3)
    assert summaries["tpot"].mean == pytest.approx((100 + 200) / 2)
    assert summaries["itl"].percentiles[100] == pytest.approx(200)
    assert summaries["e2el"].median == pytest.approx(400)


def test_goodput_counts_requests_that_keep_every_limit() -> None:
    limits = parse_goodput(["ttft:250,tpot:150", "e2el:2000"])
    assert limits == {"ttft": 250, "tpot": 150, "e2el": 2000}
    report = LoadReport({}, RUN, [99], limits)
    assert report.totals()["request_goodput"] == 2 / 2.0
    assert "Request goodput (req/s):                 1.00" in load_table(report, ["ttft"])
    for word in ("ttft", "ttft:", "itl:5", "ttft:-1", "ttft:nan", "ttft:5;tpot:3"):
        with pytest.raises(CommandFault, match="--goodput"):
            parse_goodput([word])


def test_a_table_hides_nothing() -> None:
    table = load_table(LoadReport({"max_concurrency": 2}, RUN, [99]), ["ttft", "tpot"])
    assert "Failed requests:                         1\n" in table
    assert "Maximum request concurrency:             2\n" in table
    assert "failed (1): HTTP 500: boom" in table
    assert "1 requests got fewer tokens than asked for; the first of them 1 of 3" in table
    assert "P99 TPOT (ms):" in table and "ITL" not in table


def test_a_run_in_which_everything_failed() -> None:
    run = LoadRun([Outcome(asked_tokens=1, error=f"e{n % 7}") for n in range(20)], 1.0)
    report = LoadReport({}, run, [99])
    table = load_table(report, ["ttft", "tpot", "itl", "e2el"])
    assert "Mean TTFT (ms):                          -" in table
    assert "failed (3): e0" in table and "failed otherwise: 5" in table
    result = report.as_json(detailed=True)
    assert result["mean_ttft_ms"] is None and result["max_concurrent_requests"] == 0
    assert not any(isinstance(v, float) and math.isnan(v) for v in result.values())
