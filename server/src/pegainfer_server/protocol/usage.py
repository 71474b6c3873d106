"""How many tokens a request took."""

from typing import Self

import msgspec


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """Share of the prompt that came from the prefix cache."""

    cached_tokens: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts; `completion_tokens` counts the end token, though it is not shown."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails

    @classmethod
    def of(cls, prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> Self:
        """Fill in the sum."""
        return cls(
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            total_tokens=prompt_tokens + completion_tokens,
            prompt_tokens_details=PromptTokensDetails(cached_tokens),
        )
