"""When requests arrive: a gamma process, of which Poisson is the case of burstiness 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random


def arrival_times(count: int, rate: float, burstiness: float, rng: random.Random) -> list[float]:
    """Seconds from the start at which each request arrives, the first at 0.

    Gaps are gamma-distributed with mean 1 / rate and coefficient of variation burstiness ** -0.5:
    below 1 requests come in bursts, above they come evenly.

    Args:
        count: Requests.
        rate: Requests a second.
        burstiness: Shape of the distribution.
        rng: Draws a gap for each request but the first.
    """
    times, now = [], 0.0
    for _ in range(count):
        times.append(now)
        if burstiness == 1.0:
            now += rng.expovariate(rate)
        else:
            now += rng.gammavariate(burstiness, 1.0 / (rate * burstiness))
    return times
