"""Means and percentiles of lists of numbers."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from pegainfer_core.plugin import CommandFault

if TYPE_CHECKING:
    from collections.abc import Sequence


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value below which so many percent lie, interpolated linearly between neighbours.

    Args:
        ordered: Ascending; nothing gives NaN.
        percent: 0 to 100.
    """
    if not ordered:
        return math.nan
    position = (len(ordered) - 1) * percent / 100
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def parse_percentiles(text: str, flag: str) -> list[float]:
    """Read percentiles separated by commas.

    Raises:
        CommandFault: One is no number from 0 to 100.
    """
    percents = []
    for word in text.split(","):
        try:
            percent = float(word)
        except ValueError:
            percent = math.nan
        if not 0 <= percent <= 100:
            raise CommandFault(f"{flag} {text}: {word!r} is not a percentile from 0 to 100")
        percents.append(percent)
    return percents


class Summary:
    """A list of milliseconds, summed up.

    Attributes:
        mean: Of all; NaN of none.
        median: Likewise.
        std: Standard deviation of the population.
        percentiles: By percent.
    """

    def __init__(self, values_ms: Sequence[float], percents: Sequence[float]) -> None:
        ordered = sorted(values_ms)
        self.mean = statistics.fmean(ordered) if ordered else math.nan
        self.median = percentile(ordered, 50)
        self.std = statistics.pstdev(ordered, self.mean) if ordered else math.nan
        self.percentiles = {percent: percentile(ordered, percent) for percent in percents}

    def as_json(self, name: str) -> dict[str, float | None]:
        """Keys such as `mean_ttft_ms` and `p99_ttft_ms`; what is not known is null."""
        values = {"mean": self.mean, "median": self.median, "std": self.std}
        values |= {f"p{percent:g}": value for percent, value in self.percentiles.items()}
        return {f"{key}_{name}_ms": _known(value) for key, value in values.items()}


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
