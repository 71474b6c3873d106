"""Refuses texts far beyond the context by their beginning: all of them would keep a core busy."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pegainfer_core.text import TextError
from pegainfer_server.api_error import invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pegainfer_core.text import Tokenizer

LONG_CHARS = 1 << 20
"""Shorter texts are always encoded whole, so that their refusal says how many tokens they have."""

_CHARS_A_TOKEN = 8
"""Twice of what ordinary text has."""

_CUT_TOKENS = 64
"""By so many a text may have fewer tokens than its beginning, cut off within a word."""


async def refuse_far_too_long(
    tokenizer: Tokenizer, texts: Mapping[str, str], limit_tokens: int
) -> None:
    """Return if texts may fit; that they do is not said.

    Args:
        tokenizer: Of the model.
        texts: By the fields they come from.
        limit_tokens: Context length.

    Raises:
        ApiError: 400 `context_length_exceeded`.
    """
    for param, text in texts.items():
        num_chars = _CHARS_A_TOKEN * limit_tokens
        if len(text) <= max(2 * num_chars, LONG_CHARS):
            continue
        try:
            tokens = await asyncio.to_thread(tokenizer.encode, text[:num_chars], False)
        except TextError as error:
            raise invalid(str(error), param) from error
        if len(tokens) > limit_tokens + _CUT_TOKENS:
            raise invalid(
                f"the prompt is far longer than the model's context of {limit_tokens} tokens: the "
                f"first {num_chars} of its {len(text)} characters alone have {len(tokens)}; "
                "shorten it, or ask for its end with truncate_prompt_tokens",
                param,
                code="context_length_exceeded",
            )
