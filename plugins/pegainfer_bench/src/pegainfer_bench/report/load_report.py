"""Sums up a run: the figures of a table and of a result file, from outcomes alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pegainfer_bench.report.goodput import is_good
from pegainfer_bench.report.peaks import peak_concurrency, peak_output_tokens
from pegainfer_bench.report.percentiles import Summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pegainfer_bench.client import LoadRun, Outcome

METRICS: Final = {
    "ttft": ("Time to First Token", "TTFT"),
    "tpot": ("Time per Output Token (excl. 1st token)", "TPOT"),
    "itl": ("Inter-token Latency", "ITL"),
    "e2el": ("End-to-end Latency", "E2EL"),
}
"""Heading and abbreviation of each latency."""

Json = dict[str, object]


@dataclass(frozen=True)
class LoadReport:
    """Figures of one run. Latencies and token counts are those of answered requests.

    Attributes:
        facts: What was run, for the result file: model, date, load.
        run: Outcomes and duration.
        percents: Percentiles to compute.
        limits_ms: Of good requests; empty counts none.
    """

    facts: Mapping[str, object]
    run: LoadRun
    percents: Sequence[float]
    limits_ms: Mapping[str, float] = field(default_factory=dict)

    @property
    def answered(self) -> list[Outcome]:
        """Requests that did not fail."""
        return [outcome for outcome in self.run.outcomes if outcome.ok]

    @property
    def num_failed(self) -> int:
        """Requests that failed."""
        return len(self.run.outcomes) - len(self.answered)

    @property
    def short(self) -> list[Outcome]:
        """Requests that were answered with fewer tokens than asked for."""
        return [outcome for outcome in self.run.outcomes if outcome.is_short]

    @property
    def errors(self) -> list[tuple[str, int]]:
        """What went wrong and how often, the most frequent first."""
        return Counter(
            outcome.error for outcome in self.run.outcomes if outcome.error
        ).most_common()

    def summaries(self) -> dict[str, Summary]:
        """Each latency in milliseconds."""
        answered = self.answered
        values_s = {
            "ttft": [outcome.ttft_s for outcome in answered],
            "tpot": [tpot for o in answered if (tpot := o.tpot_s) is not None],
            "itl": [gap for outcome in answered for gap in outcome.itl_s],
            "e2el": [outcome.e2el_s for outcome in answered],
        }
        return {
            name: Summary([1e3 * value for value in values], self.percents)
            for name, values in values_s.items()
        }

    def totals(self) -> dict[str, float | int | None]:
        """Counts and rates, under the keys of the result file."""
        answered, duration_s = self.answered, self.run.duration_s
        input_tokens = sum(outcome.prompt_tokens or 0 for outcome in answered)
        output_tokens = sum(outcome.output_tokens for outcome in answered)
        good = None
        if self.limits_ms:
            num_good = sum(is_good(outcome, self.limits_ms) for outcome in answered)
            good = num_good / duration_s
        return {
            "duration": duration_s,
            "completed": len(answered),
            "failed": self.num_failed,
            "short": len(self.short),
            "without_usage": sum(not outcome.has_usage for outcome in answered),
            "total_input_tokens": input_tokens,
            "total_cached_tokens": sum(outcome.cached_tokens for outcome in answered),
            "total_output_tokens": output_tokens,
            "request_throughput": len(answered) / duration_s,
            "request_goodput": good,
            "output_throughput": output_tokens / duration_s,
            "total_token_throughput": (input_tokens + output_tokens) / duration_s,
            "max_output_tokens_per_s": peak_output_tokens(answered),
            "max_concurrent_requests": peak_concurrency(answered),
        }

    def as_json(self, *, detailed: bool = False) -> Json:
        """The result file's object.

        Args:
            detailed: With every request's own figures.
        """
        result: Json = {**self.facts, **self.totals()}
        for name, summary in self.summaries().items():
            result.update(summary.as_json(name))
        result["errors"] = [{"error": error, "count": count} for error, count in self.errors]
        if detailed:
            result["requests"] = [_details(outcome) for outcome in self.run.outcomes]
        return result


def _details(outcome: Outcome) -> Json:
    if not outcome.ok:
        return {"error": outcome.error, "asked_tokens": outcome.asked_tokens}
    return {
        "asked_tokens": outcome.asked_tokens,
        "prompt_tokens": outcome.prompt_tokens,
        "cached_tokens": outcome.cached_tokens,
        "output_tokens": outcome.output_tokens,
        "ttft_s": outcome.ttft_s,
        "tpot_s": outcome.tpot_s,
        "e2el_s": outcome.e2el_s,
        "itl_s": outcome.itl_s,
    }
