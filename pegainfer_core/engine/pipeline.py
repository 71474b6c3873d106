"""Steps in flight: one is launched before the results of the one before it are read.

So the device never waits for the host between two steps. What the host does not know yet, the id
that the step before chose, the device reads from its own table. Knows nothing of policies: the
scheduler plans, this keeps the order and drops what came for sequences that are gone.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pegainfer_core.contract import DeviceFault

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    rows: list[Row]
    stints: list[int]
    step: LaunchedStep


class StepPipeline:
    """Launches plans in order and hands their results over in the same order.

    A row whose sequence was aborted, ended, or preempted after the launch is dropped: what it wrote
    lies in pages whose next owner's steps come later on the same device queue.

    Args:
        runner: Runs the steps.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
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
        rows = plan.rows
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
        self._flights.append(_Flight(rows, stints, step))

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
            rows = zip(flight.rows, flight.stints, strict=True)
            return _failure([row.sequence for row, stint in rows if _runs(row, stint)], error)
        done = []
        for row, stint, result in zip(flight.rows, flight.stints, results, strict=True):
            if _runs(row, stint):
                sequence = row.sequence
                sequence.num_completed += row.num_tokens
                sequence.num_unread -= row.samples
                done.append((row, result))
        return CompletedStep(done, [])


def _runs(row: Row, stint: int) -> bool:
    """Whether the sequence still holds the pages it held at the launch."""
    return row.sequence.slot >= 0 and row.sequence.num_preemptions == stint


def _failure(sequences: list[Sequence], error: Exception) -> CompletedStep:
    logger.error("a step failed", exc_info=error)
    return CompletedStep([], sequences, f"{type(error).__name__}: {error}")
