"""Figures of a simulation, by the definitions of `pegainfer bench serve`."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.contract import EngineMetrics
    from pegainfer_core.testing.simulator.simulated_answer import SimulatedAnswer


class Spread(msgspec.Struct, frozen=True):
    """Mean and percentiles in milliseconds, linear between neighbours; zero of nothing."""

    mean: float
    p50: float
    p99: float

    @classmethod
    def of(cls, values_s: Sequence[float]) -> Spread:
        """Of times in seconds."""
        if not values_s:
            return cls(0.0, 0.0, 0.0)
        values_ms = np.array(values_s) * 1e3
        p50, p99 = np.percentile(values_ms, (50, 99)).tolist()
        return cls(float(values_ms.mean()), p50, p99)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a load met.

    Attributes:
        num_requests: Requests, all answered.
        duration_s: From the first request's sending to the last event.
        output_tokens: Tokens of all answers.
        ttft: From a request's sending to its first event.
        tpot: (Last event - first event) / (tokens - 1), of answers with more than one token.
        itl: Every gap between events of a request.
        queue: From a request's sending until the engine began with it.
        prefix_hit_rate: Prompt tokens found in the prefix cache, of those looked up.
        restored_rate: Prompt tokens brought back by KV offload, of the same.
        num_preemptions: Requests whose pages were taken away.
        num_steps: Steps of the engine.
        max_rows: Most requests in one step.
        busy: Share of the duration in which the device computed.
    """

    num_requests: int
    duration_s: float
    output_tokens: int
    ttft: Spread
    tpot: Spread
    itl: Spread
    queue: Spread
    prefix_hit_rate: float
    restored_rate: float
    num_preemptions: int
    num_steps: int
    max_rows: int
    busy: float

    @property
    def output_tokens_per_s(self) -> float:
        """Throughput."""
        return self.output_tokens / self.duration_s if self.duration_s else 0.0

    @classmethod
    def of(
        cls,
        answers: Sequence[SimulatedAnswer],
        metrics: EngineMetrics,
        *,
        num_steps: int,
        max_rows: int,
        busy_s: float,
    ) -> Report:
        """Of ended requests.

        Args:
            answers: Each with at least one event.
            metrics: The scheduler's at the end.
            num_steps: Launched by the runner.
            max_rows: Of the runner.
            busy_s: Of the device.
        """
        first_s = min((a.arrival.at_s for a in answers), default=0.0)
        last_s = max((a.event_s[-1] for a in answers), default=0.0)
        duration_s = last_s - first_s
        queried = metrics.prefix_query_tokens
        return cls(
            num_requests=len(answers),
            duration_s=duration_s,
            output_tokens=sum(len(a.token_ids) for a in answers),
            ttft=Spread.of([a.event_s[0] - a.arrival.at_s for a in answers]),
            tpot=Spread.of(
                [
                    (a.event_s[-1] - a.event_s[0]) / (len(a.token_ids) - 1)
                    for a in answers
                    if len(a.token_ids) > 1
                ]
            ),
            itl=Spread.of(
                [after - before for a in answers for before, after in pairwise(a.event_s)]
            ),
            queue=Spread.of([a.scheduled_s - a.arrival.at_s for a in answers]),
            prefix_hit_rate=metrics.prefix_hit_tokens / queried if queried else 0.0,
            restored_rate=metrics.kv_offload.restored_tokens / queried if queried else 0.0,
            num_preemptions=metrics.num_preemptions,
            num_steps=num_steps,
            max_rows=max_rows,
            busy=busy_s / duration_s if duration_s else 0.0,
        )
