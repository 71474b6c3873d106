"""The busiest moments of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_bench.client import Outcome


def peak_concurrency(outcomes: Sequence[Outcome]) -> int:
    """Most answered requests that were under way at one time."""
    changes = [(outcome.sent_s, 1) for outcome in outcomes]
    changes += [(outcome.event_times_s[-1], -1) for outcome in outcomes]
    peak = now = 0
    for _, change in sorted(changes):
        now += change
        peak = max(peak, now)
    return peak


def peak_output_tokens(outcomes: Sequence[Outcome]) -> float:
    """Most output tokens that arrived within any one second.

    An answer's tokens are spread evenly over its events, which may hold several each.
    """
    arrivals: list[tuple[float, float]] = []
    for outcome in outcomes:
        tokens_an_event = outcome.output_tokens / len(outcome.event_times_s)
        arrivals += [(time_s, tokens_an_event) for time_s in outcome.event_times_s]
    arrivals.sort()
    peak = now = 0.0
    first = 0
    for time_s, tokens in arrivals:
        now += tokens
        while arrivals[first][0] <= time_s - 1.0:
            now -= arrivals[first][1]
            first += 1
        peak = max(peak, now)
    return peak
