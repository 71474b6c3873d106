"""How many prompt tokens a step may hold: a fixed rule, or as many as a latency target allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from pegainfer_core.engine.chunking import prefill_budget, share_prefill_budget
from pegainfer_core.engine.step_time import StepTimeModel
from pegainfer_core.engine.step_work import StepWork

if TYPE_CHECKING:
    from collections.abc import Sequence as Ordered

    from pegainfer_core.contract import ServePlan
    from pegainfer_core.engine.sequence import Sequence
    from pegainfer_core.engine.step import Row, StepPlan

_GRAINS: Final = 64
"""Budgets that a target chooses from, evenly spaced up to the limit; the first is the least."""

_FIRST_GRAINS: Final = 4
_STRIDE: Final = 1.5
"""How far beyond the largest chunks that were measured beside decoding rows the next may go."""


class PrefillBudget(Protocol):
    """Chooses the prefill budget of every step, and may learn from how long steps took."""

    def tokens(self, prefilling: Ordered[Sequence], decoding: Ordered[Row]) -> int:
        """Most prompt tokens in the next step, at least 1.

        Args:
            prefilling: Sequences with prompt tokens to compute, in order of rank.
            decoding: The step's decoding rows, which wait for all of it.
        """
        ...

    def observe(self, plan: StepPlan, duration_s: float) -> None:
        """Hear how long a step took."""
        ...


def make_prefill_budget(plan: ServePlan) -> PrefillBudget:
    """The budget that a plan asks for."""
    if plan.itl_target_s is None:
        return FixedPrefillBudget(plan.max_prefill_tokens)
    return TargetedPrefillBudget(plan.max_prefill_tokens, plan.itl_target_s)


class FixedPrefillBudget:
    """Implements `PrefillBudget` by the rule of `prefill_budget`.

    Args:
        limit_tokens: Most tokens in any step.
    """

    def __init__(self, limit_tokens: int) -> None:
        self._limit_tokens = limit_tokens

    def tokens(self, prefilling: Ordered[Sequence], decoding: Ordered[Row]) -> int:
        """By how many prompts wait and whether anybody decodes."""
        return prefill_budget(prefilling, self._limit_tokens, num_decode=len(decoding))

    def observe(self, plan: StepPlan, duration_s: float) -> None:
        """Nothing is learnt."""


class TargetedPrefillBudget:
    """Implements `PrefillBudget`: beside decoding rows as many tokens as end within a target.

    A step is the gap between two tokens of every row in it, so the budget is the largest for which
    few steps are predicted to take longer. It is never less than a 64th of the limit: prompts
    move on even where decoding alone takes longer than the target.

    Args:
        limit_tokens: Most tokens in any step.
        target_s: Gap between tokens to hold.
    """

    def __init__(self, limit_tokens: int, target_s: float) -> None:
        self._limit_tokens = limit_tokens
        self._target_s = target_s
        self._grain = max(limit_tokens // _GRAINS, 1)
        self._known_tokens = _FIRST_GRAINS * self._grain
        self._model = StepTimeModel()

    def tokens(self, prefilling: Ordered[Sequence], decoding: Ordered[Row]) -> int:
        """The largest budget within the target; without decoding rows nobody waits for one."""
        if not decoding:
            return prefill_budget(prefilling, self._limit_tokens, num_decode=0)
        waiting = sum(sequence.num_uncomputed for sequence in prefilling)
        wanted = -(-min(waiting, self._limit_tokens) // self._grain)
        rows = StepWork.decode_rows(decoding)
        good, bad = 1, min(wanted, int(self._known_tokens * _STRIDE) // self._grain) + 1
        while bad - good > 1:
            middle = (good + bad) // 2
            if self._fits(rows, prefilling, middle * self._grain):
                good = middle
            else:
                bad = middle
        return min(good * self._grain, self._limit_tokens)

    def observe(self, plan: StepPlan, duration_s: float) -> None:
        """Learn from every step."""
        work = StepWork.of(plan)
        self._model.observe(work, duration_s)
        if work.num_decode:
            self._known_tokens = max(self._known_tokens, work.prefill_tokens)

    def _fits(self, rows: StepWork, prefilling: Ordered[Sequence], budget_tokens: int) -> bool:
        shares = share_prefill_budget(prefilling, min(budget_tokens, self._limit_tokens))
        work = rows.beside(
            (sequence.num_computed, share)
            for sequence, share in zip(prefilling, shares, strict=True)
            if share
        )
        return self._model.bound_s(work) <= self._target_s
