"""How much a step computes, in the numbers that its time depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pegainfer_core.engine.step import Row, StepPlan


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
        chunks = [(row.start, row.num_tokens) for row in plan.rows[plan.num_decode :]]
        return cls.decode_rows(plan.rows[: plan.num_decode]).beside(chunks)

    @classmethod
    def decode(cls, num_rows: int, context_tokens: int) -> StepWork:
        """A step of rows that decode behind equal contexts."""
        return cls(num_rows, num_rows * context_tokens)

    @classmethod
    def decode_rows(cls, rows: Sequence[Row]) -> StepWork:
        """A step of these rows, which decode."""
        return cls(len(rows), sum(row.start for row in rows) + len(rows))

    @classmethod
    def prefill(cls, start: int, num_tokens: int) -> StepWork:
        """A step of one chunk."""
        return cls(0, 0).beside([(start, num_tokens)])

    def beside(self, chunks: Iterable[tuple[int, int]]) -> StepWork:
        """The same decoding rows beside chunks of prompts, each a start and a number of tokens."""
        num_prompts = prefill_tokens = prefill_pairs = 0
        for start, num_tokens in chunks:
            num_prompts += 1
            prefill_tokens += num_tokens
            prefill_pairs += num_tokens * start + num_tokens * (num_tokens + 1) // 2
        return StepWork(
            self.num_decode, self.decode_context_tokens, num_prompts, prefill_tokens, prefill_pairs
        )

    @property
    def num_rows(self) -> int:
        """Requests in the step."""
        return self.num_decode + self.num_prompts

    @property
    def num_tokens(self) -> int:
        """Tokens computed."""
        return self.num_decode + self.prefill_tokens
