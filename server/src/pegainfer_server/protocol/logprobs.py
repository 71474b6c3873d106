"""Log-probabilities as OpenAI's two endpoints and vLLM's `prompt_logprobs` show them."""

import msgspec


class CompletionLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """Parallel lists, one entry a token; the first token of an echoed prompt has null entries.

    Attributes:
        tokens: Text of each token.
        token_logprobs: Of the token itself.
        top_logprobs: Of the most likely tokens, by text, the chosen one included.
        text_offset: Character of the answer at which each token begins.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class TopLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """One likely token; `bytes` are its UTF-8 bytes."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChatLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """One token of a chat answer and the alternatives at its place."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True):
    """One entry a token."""

    content: list[ChatLogprob]


class RankedLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """One token at a prompt position; `rank` is 1-based, null for tokens beyond the asked top."""

    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, RankedLogprob] | None]
"""Per prompt token: id (as a string) to log-probability; the first token has none."""
