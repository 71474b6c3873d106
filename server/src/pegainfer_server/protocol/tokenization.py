"""`/tokenize` and `/detokenize`."""

import msgspec

from pegainfer_server.protocol.message import Message


class TokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly one of `prompt` and `messages`; the rest as in completions and chats.

    Attributes:
        tools: Only with `messages`.
        return_token_strs: Also return each token as the vocabulary spells it.
    """

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    tools: list[dict[str, object]] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, object] | None = None


class TokenizeResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Ids of a text or of a rendered conversation."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class DetokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Ids to turn into text, special tokens included."""

    tokens: list[int]
    model: str | None = None


class DetokenizeResponse(msgspec.Struct, frozen=True):
    """The text of the ids."""

    prompt: str
