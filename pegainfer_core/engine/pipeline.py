"""Steps in flight: one is launched before the results of the one before it are read.

So the device never waits for the host between two steps. What the host does not know yet, the id
that the step before chose, the device reads from its own table. Knows nothing of policies: the
scheduler plans, this keeps the order and drops what came for sequences that are gone.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pegainfer_core.contract import DeviceFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pegainfer_core.engine.sequence import Sequence
    from pegainfer_core.engine.step import LaunchedStep, ModelRunner, Row, RowResult, StepPlan

logger = logging.getLogger(__name__)


class CompletedStep(NamedTuple):
    """Outcome of a step for the sequences that still run.

    Attributes:
        rows: Rows and what they produced; none when the step failed.
        failed: Sequences whose step failed.
        error: Why, empty otherwise.
    """

    rows: list[tuple[Row, RowResult]]
    failed: list[Sequence]
    error: str = ""


class _Flight(NamedTuple):
    plan: StepPlan
    stints: list[int]
    step: LaunchedStep
    launched_s: float


class StepPipeline:
    """Launches plans in order and hands their results over in the same order.

    A row whose sequence was aborted, ended, or preempted after the launch is dropped: what it wrote
    lies in pages whose next owner's steps come later on the same device queue.

    Args:
        runner: Runs the steps.
        observe: Hears how long each step took: from the end of the one before it, or from its own
            launch where that was later.
        clock: Seconds since any moment.
    """

    def __init__(
        self,
        runner: ModelRunner,
        observe: Callable[[StepPlan, float], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runner = runner
        self._observe = observe
        self._clock = clock
        self._ended_s = 0.0
        self._flights: deque[_Flight] = deque()
        self._failures: list[CompletedStep] = []

    def __bool__(self) -> bool:
        """Whether results are still to come."""
        return bool(self._flights or self._failures)

    def launch(self, plan: StepPlan) -> None:
        """Start a step and count its tokens as computed.

        Raises:
            DeviceFault: The device is lost.
        """
        rows, launched_s = plan.rows, self._clock()
        try:
            step = self._runner.launch(plan)
        except DeviceFault:
            raise
        except Exception as error:
            self._runner.raise_if_lost()
            self._failures.append(_failure([row.sequence for row in rows], error))
            return
        for sequence, _, num_tokens, samples in rows:
            sequence.num_computed += num_tokens
            sequence.num_unread += samples
        stints = [row.sequence.num_preemptions for row in rows]
        self._flights.append(_Flight(plan, stints, step, launched_s))

    def complete(self, num_kept: int) -> Iterator[CompletedStep]:
        """Wait for all but the newest `num_kept` steps, fewer are kept where one blocks.

        Raises:
            DeviceFault: The device is lost.
        """
        while self._flights and (len(self._flights) > num_kept or self._flights[0].step.blocks):
            yield self._complete(self._flights.popleft())
        while self._failures:
            yield self._failures.pop()

    def _complete(self, flight: _Flight) -> CompletedStep:
        try:
            results = flight.step.results()
        except DeviceFault:
            raise
        except Exception as error:
            self._runner.raise_if_lost()
            self._ended_s = self._clock()
            rows = zip(flight.plan.rows, flight.stints, strict=True)
            return _failure([row.sequence for row, stint in rows if _runs(row, stint)], error)
        self._time(flight)
        done = []
        for row, stint, result in zip(flight.plan.rows, flight.stints, results, strict=True):
            if _runs(row, stint):
                sequence = row.sequence
                sequence.num_completed += row.num_tokens
                sequence.num_unread -= row.samples
                done.append((row, result))
        return CompletedStep(done, [])

    def _time(self, flight: _Flight) -> None:
        began_s, self._ended_s = max(self._ended_s, flight.launched_s), self._clock()
        if self._observe is not None:
            self._observe(flight.plan, self._ended_s - began_s)


def _runs(row: Row, stint: int) -> bool:
    """Whether the sequence still holds the pages it held at the launch."""
    return row.sequence.slot >= 0 and row.sequence.num_preemptions == stint


def _failure(sequences: list[Sequence], error: Exception) -> CompletedStep:
    logger.error("a step failed", exc_info=error)
    return CompletedStep([], sequences, f"{type(error).__name__}: {error}")
