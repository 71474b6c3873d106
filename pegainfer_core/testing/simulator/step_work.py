"""How much a planned step computes, in the numbers that its time depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pegainfer_core.engine import StepPlan


class StepWork(NamedTuple):
    """Size of one step.

    Attributes:
        num_decode: Decoding rows, one token each.
        decode_context_tokens: Tokens whose keys and values those rows read, summed over rows.
        num_prompts: Prefilling rows.
        prefill_tokens: Prompt tokens computed.
        prefill_pairs: Pairs of a prompt token and a token that it attends to.
    """

    num_decode: int
    decode_context_tokens: int
    num_prompts: int = 0
    prefill_tokens: int = 0
    prefill_pairs: int = 0

    @classmethod
    def of(cls, plan: StepPlan) -> StepWork:
        """Measure a plan."""
        chunks = plan.rows[plan.num_decode :]
        return cls(
            num_decode=plan.num_decode,
            decode_context_tokens=sum(row.start + 1 for row in plan.rows[: plan.num_decode]),
            num_prompts=len(chunks),
            prefill_tokens=sum(row.num_tokens for row in chunks),
            prefill_pairs=sum(_pairs(row.start, row.num_tokens) for row in chunks),
        )

    @classmethod
    def decode(cls, num_rows: int, context_tokens: int) -> StepWork:
        """A step of rows that decode behind equal contexts."""
        return cls(num_rows, num_rows * context_tokens)

    @classmethod
    def prefill(cls, start: int, num_tokens: int) -> StepWork:
        """A step of one chunk."""
        return cls(0, 0, 1, num_tokens, _pairs(start, num_tokens))

    @property
    def num_rows(self) -> int:
        """Requests in the step."""
        return self.num_decode + self.num_prompts

    @property
    def num_tokens(self) -> int:
        """Tokens computed."""
        return self.num_decode + self.prefill_tokens


def _pairs(start: int, num_tokens: int) -> int:
    return num_tokens * start + num_tokens * (num_tokens + 1) // 2
