"""Learns how long steps take from those that were measured.

Knows no device: times are taken to be linear in what a step computes, near the steps that were
seen lately. Far from those a prediction is worth little; who uses it must move in small strides.
"""

from __future__ import annotations

from operator import mul
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pegainfer_core.engine.step_work import StepWork

_MEMORY_STEPS: Final = 200
"""Steps of each kind after which one counts a third; rare kinds are remembered as long by count."""

_SWEEPS: Final = 3
_NOISE_RATE: Final = 0.03
_START_NOISE, _LEAST_NOISE, _MOST_NOISE = 0.05, 0.01, 0.3
_OUTLIER_SIGMAS: Final = 3.0
_BOUND_SIGMAS: Final = 2.0
_TRUSTED_STEPS: Final = 10
"""Steps of a kind before one of them can be called an outlier."""


class StepTimeModel:
    """Non-negative least squares of relative errors over what steps compute, forgetting slowly.

    Each kind of step (decoding, prompts, both) forgets at its own pace, so that a long time without
    prompts does not wipe out what they cost. The costs follow by coordinate descent from the last
    ones: where steps say nothing new about one, it stays. A step far from its prediction, such as
    one in which the host had other things to do, counts as one at three standard deviations.
    """

    def __init__(self) -> None:
        self._kinds: dict[tuple[bool, bool], _Moments] = {}
        self._costs = [0.0] * _NUM_FEATURES
        self._noise = _START_NOISE

    def observe(self, work: StepWork, duration_s: float) -> None:
        """Learn from a measured step; one that took no time is ignored."""
        if duration_s <= 0.0:
            return
        kind = (work.num_decode > 0, work.num_prompts > 0)
        moments = self._kinds.get(kind)
        if moments is None:
            moments = self._kinds[kind] = _Moments()
        if moments.num_steps >= _TRUSTED_STEPS:
            duration_s = self._without_outlier(work, duration_s)
        moments.add(_features(work), duration_s)
        self._descend()

    def expect_s(self, work: StepWork) -> float:
        """Mean time of such a step; 0 before any was measured."""
        return _dot(self._costs, _features(work))

    def bound_s(self, work: StepWork) -> float:
        """A time that few such steps exceed, by the noise seen lately."""
        return self.expect_s(work) * (1.0 + _BOUND_SIGMAS * self._noise)

    def _without_outlier(self, work: StepWork, duration_s: float) -> float:
        """The time, moved into the range of what is likely; learns how wide that is."""
        mean_s = self.expect_s(work)
        reach_s = _OUTLIER_SIGMAS * self._noise * mean_s
        likely_s = min(max(duration_s, mean_s - reach_s), mean_s + reach_s)
        if work.num_decode and work.num_prompts and mean_s > 0.0:
            error = (likely_s - mean_s) / mean_s
            variance = self._noise**2 + _NOISE_RATE * (error**2 - self._noise**2)
            self._noise = min(max(variance**0.5, _LEAST_NOISE), _MOST_NOISE)
        return likely_s

    def _descend(self) -> None:
        kinds = list(self._kinds.values())
        for _ in range(_SWEEPS):
            for i in range(_NUM_FEATURES):
                weight = sum(moments.products[i][i] for moments in kinds)
                if weight <= 0.0:
                    continue
                target = sum(
                    moments.targets[i] - _dot(moments.products[i], self._costs) for moments in kinds
                )
                self._costs[i] = max(self._costs[i] + target / weight, 0.0)


class _Moments:
    """Sums over steps of one kind, each weighted by one over its time squared."""

    def __init__(self) -> None:
        self.num_steps = 0
        self.products = [[0.0] * _NUM_FEATURES for _ in range(_NUM_FEATURES)]
        self.targets = [0.0] * _NUM_FEATURES

    def add(self, features: list[float], duration_s: float) -> None:
        self.num_steps += 1
        keep = 1.0 - 1.0 / min(self.num_steps + 1, _MEMORY_STEPS)
        scaled = [feature / duration_s for feature in features]
        for i, value in enumerate(scaled):
            row = self.products[i]
            row[:] = [keep * old + value * other for old, other in zip(row, scaled, strict=True)]
            self.targets[i] = keep * self.targets[i] + value


def _features(work: StepWork) -> list[float]:
    """What a step's time is linear in, each about 1 in a step of medium size."""
    return [
        1.0,
        1.0 if work.num_prompts else 0.0,
        1.0 if work.num_prompts and work.num_decode else 0.0,
        work.num_decode / 64,
        work.decode_context_tokens / 65_536,
        work.prefill_tokens / 1024,
        work.prefill_pairs / 4_194_304,
    ]


_NUM_FEATURES: Final = 7


def _dot(left: list[float], right: list[float]) -> float:
    total: float = sum(map(mul, left, right))
    return total
