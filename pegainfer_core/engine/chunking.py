"""How a step's prefill budget is shared among the prompts that wait to be computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pegainfer_core.engine.step import Row
from pegainfer_core.kv import PageError

if TYPE_CHECKING:
    from collections.abc import Sequence as Ordered

    from pegainfer_core.engine.sequence import Sequence
    from pegainfer_core.kv import KvManager


MIXED_PREFILL_TOKENS: Final = 1024
"""Prompt tokens in a step beside decoding rows while few wait: bounds what a token waits."""

MANY_PROMPTS: Final = 4
MANY_TOKENS: Final = MANY_PROMPTS * MIXED_PREFILL_TOKENS
FEW_PREFILL_TOKENS: Final = 4096
"""Prompt tokens in a step while few wait: devices are as fast a token as with more, and who arrives
during the step waits for its end."""

SCORED_PREFILL_TOKENS: Final = 256
"""Tokens in a step of prompts whose log-probabilities are asked for: the host may need 2 ms for
each, while everybody waits and nothing shows that the engine lives."""


def prefill_budget(sequences: Ordered[Sequence], limit_tokens: int, num_decode: int) -> int:
    """Most prompt tokens in a step.

    Every running request waits for the step's prompt tokens, so beside decoding rows the budget is
    small. Not so when many prompts wait: they delay everybody in any case, by less in few large
    steps than in many small ones, because each of those also carries the decoding rows.

    Args:
        sequences: Prefilling ones.
        limit_tokens: Most tokens in any step.
        num_decode: Decoding rows in the step.
    """
    waiting = sum(sequence.num_uncomputed for sequence in sequences)
    if len(sequences) >= MANY_PROMPTS and waiting >= MANY_TOKENS:
        return limit_tokens
    return min(MIXED_PREFILL_TOKENS if num_decode else FEW_PREFILL_TOKENS, limit_tokens)


def plan_chunks(sequences: Ordered[Sequence], budget_tokens: int, kv: KvManager) -> list[Row]:
    """Rows of one step's prefill, with pages for their tokens.

    Args:
        sequences: Running sequences with tokens to compute, in order of rank.
        budget_tokens: Most prompt tokens in the step.
        kv: Holds a reservation for all of them.

    Raises:
        PageError: A sequence was admitted without a reservation.
    """
    rows = []
    shares = share_prefill_budget(sequences, budget_tokens)
    for sequence, share in zip(sequences, shares, strict=True):
        if share == 0:
            continue
        start = sequence.num_computed
        if not kv.grow(sequence, start + share):
            raise PageError(f"no page for a chunk of request {sequence.request_id}")
        is_last = share == sequence.num_uncomputed
        rows.append(Row(sequence, start, share, is_last and sequence.max_tokens > 0))
    return rows


def share_prefill_budget(sequences: Ordered[Sequence], budget_tokens: int) -> list[int]:
    """Tokens of each sequence to compute in this step.

    One half of the budget goes by rank, so that the first always moves on at half speed or better;
    the rest goes to the shortest remainder of the best priority, so that a short prompt starts
    in the next step although a long one is under way. What one half leaves, the other takes.
    Prompts of equal length are computed one after the other, not side by side, because that
    ends the first ones sooner and the last no later. Prompts to be scored get few tokens a step.

    Args:
        sequences: Prefilling sequences in order of rank.
        budget_tokens: Most prompt tokens in the step, at least 1.

    Returns:
        Token counts, parallel to `sequences`; their sum is the budget or all that may be done.
    """
    shares = [0] * len(sequences)
    remainders = _wanted(sequences)
    by_rank = range(len(sequences))
    by_length = sorted(
        by_rank, key=lambda i: (sequences[i].request.priority, sequences[i].num_uncomputed)
    )
    left = budget_tokens - _pour(by_rank, budget_tokens - budget_tokens // 2, remainders, shares)
    _pour(by_length, left, remainders, shares)
    return shares


def _wanted(sequences: Ordered[Sequence]) -> list[int]:
    """Most tokens of each that a step may compute."""
    left = SCORED_PREFILL_TOKENS
    wanted = []
    for sequence in sequences:
        count = sequence.num_uncomputed
        if sequence.prompt_logprobs is not None:
            count = min(count, left)
            left -= count
        wanted.append(count)
    return wanted


def _pour(order: Ordered[int], budget: int, remainders: list[int], shares: list[int]) -> int:
    """Give each in turn all it wants until the budget is gone; returns what was given."""
    left = budget
    for index in order:
        if left == 0:
            break
        given = min(left, remainders[index])
        remainders[index] -= given
        shares[index] += given
        left -= given
    return budget - left
