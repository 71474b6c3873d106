"""The busiest moments of a run."""

from __future__ import annotations

from collections import Counter
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
    """Most output tokens that arrived within one second, counted in whole seconds of the run.

    An answer's tokens are spread evenly over its events, which may hold several each.
    """
    if not outcomes:
        return 0.0
    start_s = min(outcome.sent_s for outcome in outcomes)
    seconds: Counter[int] = Counter()
    for outcome in outcomes:
        tokens_an_event = outcome.output_tokens / len(outcome.event_times_s)
        for second, events in Counter(int(t - start_s) for t in outcome.event_times_s).items():
            seconds[second] += events * tokens_an_event  # type: ignore[assignment]
    return max(seconds.values())
