"""Arrival processes: rate, burstiness, seeds."""

from __future__ import annotations

import random
import statistics
from itertools import pairwise

import pytest
from pegainfer_bench.client import arrival_times


def gaps(burstiness: float, seed: int = 5, rate: float = 20.0) -> list[float]:
    times = arrival_times(20_000, rate, burstiness, random.Random(seed))
    assert times[0] == 0.0
    return [later - earlier for earlier, later in pairwise(times)]


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0, 100.0])
def test_mean_and_spread(burstiness: float) -> None:
    found = gaps(burstiness)
    assert min(found) >= 0
    mean = statistics.fmean(found)
    assert mean == pytest.approx(1 / 20, rel=0.05)
    assert statistics.pstdev(found) / mean == pytest.approx(burstiness**-0.5, rel=0.07)


def test_poisson_gaps_are_exponential() -> None:
    found = gaps(1.0)
    for multiple in (0.5, 1.0, 2.0):
        share = sum(gap > multiple / 20 for gap in found) / len(found)
        assert share == pytest.approx(2.718281828**-multiple, abs=0.015)


def test_a_seed_decides() -> None:
    assert gaps(1.0, seed=3) == gaps(1.0, seed=3) != gaps(1.0, seed=4)
