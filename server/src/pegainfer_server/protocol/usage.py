"""How many tokens a request took."""

from typing import Self

import msgspec
from msgspec import UNSET, UnsetType


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """Share of the prompt that came from the prefix cache."""

    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct, frozen=True):
    """Share of the answer that is reasoning, its markers included."""

    reasoning_tokens: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts; `completion_tokens` counts the end token, though it is not shown.

    Attributes:
        completion_tokens_details: Absent for answers whose reasoning is not told apart.
    """

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET

    @property
    def num_reasoning_tokens(self) -> int | None:
        """Those of the answer; None where reasoning is not told apart."""
        details = self.completion_tokens_details
        return None if details is UNSET else details.reasoning_tokens

    @classmethod
    def of(
        cls,
        prompt_tokens: int,
        completion_tokens: int,
        cached_tokens: int,
        reasoning_tokens: int | None = None,
    ) -> Self:
        """Fill in the sum."""
        return cls(
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            total_tokens=prompt_tokens + completion_tokens,
            prompt_tokens_details=PromptTokensDetails(cached_tokens),
            completion_tokens_details=(
                UNSET if reasoning_tokens is None else CompletionTokensDetails(reasoning_tokens)
            ),
        )
