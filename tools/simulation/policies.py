"""Chunk policies: what might stand in the place of `pegainfer_core.engine.make_prefill_budget`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Ordered
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final
from unittest import mock

from pegainfer_qwen3 import scheduler

from pegainfer_core.engine import (
    FixedPrefillBudget,
    TargetedPrefillBudget,
    budget,
    chunking,
    prefill_budget,
)

if TYPE_CHECKING:
    from pegainfer_core.contract import ServePlan
    from pegainfer_core.engine import PrefillBudget, Row, Sequence

Policy = Callable[[Ordered["Sequence"], int, int], int]
"""Of prefilling sequences, the most tokens in a step, and decoding rows: prompt tokens."""

_MANY_PROMPTS, _MANY_WAITING, _FEW = 4, 4096, 4096


def beside(mixed_tokens: int, many_tokens: int | None = None) -> Policy:
    """The present policy with other numbers.

    Args:
        mixed_tokens: Most prompt tokens beside decoding rows while few wait.
        many_tokens: Most of them while many wait; None: as many as a step may hold.
    """

    def rule(sequences: Ordered[Sequence], limit_tokens: int, num_decode: int) -> int:
        waiting = sum(sequence.num_uncomputed for sequence in sequences)
        if len(sequences) >= _MANY_PROMPTS and waiting >= _MANY_WAITING:
            return min(many_tokens or limit_tokens, limit_tokens) if num_decode else limit_tokens
        return min(mixed_tokens if num_decode else _FEW, limit_tokens)

    return rule


def always_limit(sequences: Ordered[Sequence], limit_tokens: int, num_decode: int) -> int:
    """As much as a step may hold."""
    return limit_tokens


def half_backlog(sequences: Ordered[Sequence], limit_tokens: int, num_decode: int) -> int:
    """Beside decoding rows half of what waits, but 256 tokens at least."""
    if not num_decode:
        return beside(0)(sequences, limit_tokens, 0)
    waiting = sum(sequence.num_uncomputed for sequence in sequences)
    return min(max(waiting // 2, 256), limit_tokens)


class RuleBudget(FixedPrefillBudget):
    """A `PrefillBudget` by a rule that learns nothing."""

    def __init__(self, policy: Policy, limit_tokens: int) -> None:
        super().__init__(limit_tokens)
        self._policy = policy

    def tokens(self, prefilling: Ordered[Sequence], decoding: Ordered[Row]) -> int:
        """What the rule says."""
        return self._policy(prefilling, self._limit_tokens, len(decoding))


POLICIES: Final[dict[str, Policy]] = {
    "present": prefill_budget,
    "256": beside(256),
    "512": beside(512),
    "2048": beside(2048),
    "limit": always_limit,
    "whole": always_limit,
    "half": half_backlog,
    "many-2048": beside(1024, 2048),
    "many-4096": beside(1024, 4096),
    "strict-512": beside(512, 512),
    "strict-1024": beside(1024, 1024),
    "strict-2048": beside(2048, 2048),
}
"""By name. `N`: the present one with N tokens beside decoding rows while few wait; `many-N`: with N
while many wait; `strict-N`: N however many wait; `whole`: where the limit is as long as the
context, without chunks."""


TARGETS_MS: Final = {f"itl-{ms}": ms for ms in (10, 15, 20, 30, 40, 60)}
"""Policies that hold a gap between tokens, as `--itl-target-ms` does."""


NAMES: Final = (*POLICIES, *TARGETS_MS)

SHARING: Final = ("half", "first", "shortest")
"""How a step's budget is shared out: half by rank and the rest to the shortest, as the engine does;
all by rank; all to the shortest."""


def make_budget(policy: str, plan: ServePlan) -> PrefillBudget:
    """The budget of a policy by its name.

    Raises:
        KeyError: There is no such policy.
    """
    if policy in TARGETS_MS:
        return TargetedPrefillBudget(plan.max_prefill_tokens, TARGETS_MS[policy] / 1e3)
    return RuleBudget(POLICIES[policy], plan.max_prefill_tokens)


@contextmanager
def in_place(policy: str, sharing: str = "half") -> Iterator[None]:
    """Let Qwen3's scheduler, unchanged, look up other policies under the names it imports."""

    def make(plan: ServePlan) -> PrefillBudget:
        return make_budget(policy, plan)

    def share(sequences: Ordered[Sequence], budget_tokens: int) -> list[int]:
        order: Ordered[int] = range(len(sequences))
        if sharing == "shortest":
            order = sorted(order, key=lambda i: sequences[i].num_uncomputed)
        shares = [0] * len(sequences)
        for index in order:
            shares[index] = min(sequences[index].num_uncomputed, budget_tokens)
            budget_tokens -= shares[index]
        return shares

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(scheduler, "make_prefill_budget", make))
        if sharing != "half":
            for module in (budget, chunking):
                stack.enter_context(mock.patch.object(module, "share_prefill_budget", share))
        yield
