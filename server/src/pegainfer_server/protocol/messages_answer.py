"""`/v1/messages`: the answer, and the events of a streamed one, in Anthropic's form."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from pegainfer_server.protocol.usage import Usage


class ThinkingTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Share of the answer that is thinking, its markers included."""

    thinking_tokens: int


class MessageUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts under this API's names.

    Attributes:
        input_tokens: Of the prompt, without those from the prefix cache.
        cache_read_input_tokens: Those from the prefix cache.
    """

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: ThinkingTokens | UnsetType = UNSET


def message_usage(usage: Usage) -> MessageUsage:
    """The counts of a chat."""
    details = usage.completion_tokens_details
    cached = usage.prompt_tokens_details.cached_tokens
    return MessageUsage(
        input_tokens=usage.prompt_tokens - cached,
        cache_read_input_tokens=cached,
        output_tokens=usage.completion_tokens,
        output_tokens_details=(
            UNSET if details is UNSET else ThinkingTokens(thinking_tokens=details.reasoning_tokens)
        ),
    )


class TextOutput(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """What the model said."""

    text: str
    citations: None = None


class ThinkingOutput(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="thinking"):
    """What the model thought; the signature proves nothing."""

    thinking: str
    signature: str


class ToolUseOutput(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_use"):
    """A function that is to be called; `input` is the model's own JSON."""

    id: str
    name: str
    input: msgspec.Raw


ContentBlock = TextOutput | ThinkingOutput | ToolUseOutput


class AnsweredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, or the beginning of a streamed one."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[ContentBlock]
    stop_reason: str | None
    stop_sequence: str | None
    usage: MessageUsage


class BlockDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What is added to a block; each type has its own field."""

    type: str
    text: str | UnsetType = UNSET
    thinking: str | UnsetType = UNSET
    partial_json: str | UnsetType = UNSET
    signature: str | UnsetType = UNSET


class MessageDelta(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer ended."""

    stop_reason: str
    stop_sequence: str | None


class MessageEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a stream; each type has the fields it needs."""

    type: str
    message: AnsweredMessage | UnsetType = UNSET
    index: int | UnsetType = UNSET
    content_block: ContentBlock | UnsetType = UNSET
    delta: BlockDelta | MessageDelta | UnsetType = UNSET
    usage: MessageUsage | UnsetType = UNSET


class MessageFault(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong."""

    type: str
    message: str


class MessageError(msgspec.Struct, frozen=True, kw_only=True):
    """Body of responses whose status is not 2xx, and the event for a fault in a stream."""

    type: Literal["error"] = "error"
    error: MessageFault
    request_id: str | UnsetType = UNSET
