"""What the offline API returns for one prompt."""

from __future__ import annotations

import msgspec

from pegainfer_core.contract import TokenLogprobs


class RequestOutput(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt's answer.

    Attributes:
        prompt: The prompt's text, rendered for chats; None when ids were given.
        prompt_token_ids: What the engine got.
        text: The answer, without the end token or stop string that ended it.
        token_ids: The answer's ids, the end token that ended it included.
        finish_reason: "stop" (an end token, stop token or stop string), "length", or "abort".
        stop_reason: The stop string, or the id out of `stop_token_ids`, that ended the answer; None
            for the model's own end tokens.
        logprobs: Parallel to `token_ids` when asked for.
        prompt_logprobs: Parallel to `prompt_token_ids` when asked for; None for the first.
        num_cached_tokens: Prompt tokens taken from the prefix cache.
        sample_index: Which of the prompt's samples this is.
    """

    prompt: str | None
    prompt_token_ids: list[int]
    text: str
    token_ids: list[int]
    finish_reason: str
    stop_reason: str | int | None = None
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    num_cached_tokens: int = 0
    sample_index: int = 0
