"""`/v1/chat/completions`: request and response."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pegainfer_server.protocol.logprobs import ChatLogprobs, PromptLogprobs
from pegainfer_server.protocol.message import Message
from pegainfer_server.protocol.sampling_fields import SamplingFields, stated
from pegainfer_server.protocol.tools import ToolCall, ToolCallChunk
from pegainfer_server.protocol.usage import Usage


class ChatRequest(SamplingFields, frozen=True, kw_only=True):
    """Answer a conversation.

    Attributes:
        messages: The conversation, oldest first.
        max_tokens: Older name of `max_completion_tokens`.
        max_completion_tokens: Most tokens to generate; by default what the context has room for.
        logprobs: Show the log-probability of each token.
        top_logprobs: Alternatives to show beside each token; needs `logprobs`.
        chat_template_kwargs: Variables of the chat template, such as `enable_thinking`.
        tools: Functions the model may call: `{"type": "function", "function": {...}}`.
        tool_choice: "auto", "none", "required", or the function that must be called.
        parallel_tool_calls: Whether an answer may hold more than one call; true by default.
        include_reasoning: Show the model's reasoning; true by default.
        separate_reasoning: Tell reasoning and content apart; true by default.
        reasoning_effort: "none" switches thinking off, other values switch it on.
        add_generation_prompt: End the rendered prompt where the assistant's turn begins.
        continue_final_message: Leave the last message open, for the answer to continue it.
    """

    messages: list[Message]
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, stated(minimum=0, maximum=20)] | None = None
    tools: list[dict[str, object]] | None = None
    tool_choice: str | dict[str, object] | None = None
    parallel_tool_calls: bool | None = None
    include_reasoning: bool | None = None
    separate_reasoning: bool | None = None
    chat_template_kwargs: dict[str, object] | None = None
    reasoning_effort: str | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The assistant's turn; `reasoning` and `reasoning_content` are the same text."""

    role: str
    content: str | None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] | None = None


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One answer."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: str | int | None
    token_ids: list[int] | UnsetType = UNSET


class ChatResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str | None
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class ChatDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk adds to the message."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[ToolCallChunk] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk adds; absent fields were not asked for or come at the end."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET
    finish_reason: str | None
    stop_reason: str | int | UnsetType | None = UNSET


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a stream."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
