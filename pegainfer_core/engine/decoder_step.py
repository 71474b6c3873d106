"""A step of a decoder that was launched. Knows neither model nor backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.engine.step import RowResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.contract import TokenLogprobs
    from pegainfer_core.engine.step import StepPlan
    from pegainfer_core.sampling import PendingTokens


class DecoderStep:
    """Implements `LaunchedStep`.

    Args:
        plan: Of the step.
        scores: Log-probabilities of prompt tokens by row index.
        blocks: As in `LaunchedStep`.
        pending: The chosen tokens; None if nothing is chosen, or not yet.
        choose: Launches the choice, where that was put off until masks are known.
    """

    def __init__(
        self,
        plan: StepPlan,
        scores: dict[int, list[TokenLogprobs]],
        *,
        blocks: bool,
        pending: PendingTokens | None = None,
        choose: Callable[[], PendingTokens] | None = None,
    ) -> None:
        self.blocks = blocks
        self._plan = plan
        self._scores = scores
        self._pending = pending
        self._choose = choose
        self._error: Exception | None = None

    def settle(self) -> None:
        """Launch the choice if that is still to be done; what it raises comes with the results."""
        choose, self._choose = self._choose, None
        if choose is None:
            return
        try:
            self._pending = choose()
        except Exception as error:
            self._error = error

    def results(self) -> list[RowResult]:
        """Wait for the tokens."""
        self.settle()
        if self._error is not None:
            raise self._error
        tokens = self._pending.tokens() if self._pending else []
        rows, scores = self._plan.rows, self._scores
        if len(tokens) == len(rows) and not scores:
            return [RowResult(*token) for token in tokens]
        chosen = iter(tokens)
        results = []
        for index, row in enumerate(rows):
            token_id, logprobs = next(chosen) if row.samples else (None, None)
            results.append(RowResult(token_id, logprobs, scores.get(index)))
        return results
