"""A model runner that computes nothing but time, and tokens that betray a wrong page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.engine import RowResult, StepWork
from pegainfer_core.testing.simulator.page_contents import PageContents
from pegainfer_core.testing.simulator.token_rule import choose, end_token

if TYPE_CHECKING:
    from pegainfer_core.contract import ServePlan
    from pegainfer_core.engine import LaunchedStep, Row, StepPlan
    from pegainfer_core.testing.simulator.clock import SimulatedClock
    from pegainfer_core.testing.simulator.cost_model import CostModel


class SimulatedRunner:
    """Implements `pegainfer_core.engine.ModelRunner` on a simulated clock.

    A launch takes the host's time and queues the step behind those under way; its results wait for
    the device. With `ahead`, as on a GPU, the next step may be launched before they are read.

    Attributes:
        clock: The time.
        contents: What pages hold.
        num_steps: Steps launched.
        max_rows: Most requests in one of them.
        busy_s: Time that the device computed.
        answer_tokens: By request id, length of the answers that the model ends by itself.

    Args:
        cost: Of steps.
        clock: Moved by launches and by waiting for results.
        plan: Page size and vocabulary.
        ahead: Whether steps may be launched ahead.
    """

    def __init__(
        self, cost: CostModel, clock: SimulatedClock, plan: ServePlan, *, ahead: bool = True
    ) -> None:
        self.num_steps = 0
        self.max_rows = 0
        self.busy_s = 0.0
        self.answer_tokens: dict[int, int] = {}
        self._cost = cost
        self.clock = clock
        self._ahead = ahead
        self._vocab_size = plan.vocab_size
        self.contents = PageContents(plan.page_tokens)
        self._newest: dict[int, int] = {}
        self._free_s = 0.0

    def launch(self, plan: StepPlan) -> LaunchedStep:
        """Start a step.

        Raises:
            SimulationError: A row's pages do not hold its context.
        """
        cost = self._cost.cost(StepWork.of(plan))
        self.clock.advance(cost.pack_s)
        begin_s = max(self.clock.now_s, self._free_s)
        self.clock.advance(cost.launch_s)
        # A launch kernel by kernel ends after all but the last kernel have begun.
        self._free_s = max(begin_s + cost.device_s, self.clock.now_s)
        self.num_steps += 1
        self.max_rows = max(self.max_rows, len(plan.rows))
        self.busy_s += cost.device_s
        results = [RowResult(self._compute(row)) for row in plan.rows]
        return _SimulatedStep(results, self.clock, self._free_s, blocks=not self._ahead)

    def forget(self, request_id: int) -> None:
        """A preempted request comes back, so lengths of answers stay."""

    def raise_if_lost(self) -> None:
        """There is no device to lose."""

    def close(self) -> None:
        """Nothing to release."""

    def _compute(self, row: Row) -> int | None:
        sequence, start, num_tokens, samples = row
        token_ids = sequence.token_ids[start : start + num_tokens]
        if sequence.num_unread and start == len(sequence.token_ids):
            token_ids = [self._newest[sequence.slot]]
        digest = self.contents.write(sequence.page_ids, start, token_ids)
        if not samples:
            return None
        num_generated = start + num_tokens - sequence.num_prompt
        if self.answer_tokens.get(sequence.request_id) == num_generated:
            return end_token(self._vocab_size)
        token_id = choose(digest, self._vocab_size)
        self._newest[sequence.slot] = token_id
        return token_id


class _SimulatedStep:
    """Implements `pegainfer_core.engine.LaunchedStep`."""

    def __init__(
        self, results: list[RowResult], clock: SimulatedClock, end_s: float, *, blocks: bool
    ) -> None:
        self.blocks = blocks
        self._results = results
        self._clock = clock
        self._end_s = end_s

    def results(self) -> list[RowResult]:
        """Wait for the device."""
        self._clock.advance_to(self._end_s)
        return self._results
