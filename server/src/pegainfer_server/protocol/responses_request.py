"""`/v1/responses`: the request. Items of `input` are told apart where they are translated."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from pegainfer_server.protocol.chat import ChatRequest
from pegainfer_server.protocol.refused import REFUSED_IN_CHAT, Neutral
from pegainfer_server.protocol.sampling_fields import GenerationFields
from pegainfer_server.protocol.tools import FunctionName

Summary = Literal["auto", "concise", "detailed"]


class ReasoningOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of reasoning.

    Attributes:
        effort: As `reasoning_effort` of chats.
        summary: Also show the reasoning as its own summary.
        generate_summary: Older name of `summary`.
        context: Which turns' reasoning the model sees; the template decides.
        mode: Only "standard".
    """

    effort: str | None = None
    summary: Summary | None = None
    generate_summary: Summary | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: str | None = None


class TextOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of the text.

    Attributes:
        format: `{"type": "text"}`, or a format that the text is held to.
        verbosity: Only "medium".
    """

    format: dict[str, object] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ResponsesStreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Only what asks for nothing."""

    include_obfuscation: bool | None = None


class CacheOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Wishes about the prompt cache of the hosted API.

    Attributes:
        mode: Ignored, as is `ttl`: prefixes are cached without being asked, until room is needed.
        prewarm: Only false.
        comparison_response_id: Never known.
    """

    mode: Literal["implicit", "explicit"] | None = None
    ttl: str | None = None
    prewarm: bool | None = None
    comparison_response_id: str | None = None


class ResponsesRequest(GenerationFields, frozen=True, kw_only=True):
    """Answer items. Nothing is stored: every request brings its whole history.

    Attributes:
        input: A user's text, or items: messages, reasoning, calls and their results.
        instructions: A system text before the input.
        max_output_tokens: Most tokens to generate; by default what the context has room for.
        tools: Functions, `{"type": "function", "name", "description", "parameters"}`, and
            namespaces of functions.
        tool_choice: As in chats; a function is named by `{"type": "function", "name"}`.
        parallel_tool_calls: Whether an answer may hold more than one call; true by default.
        reasoning: What is asked of reasoning.
        text: What is asked of the text.
        include: "reasoning.encrypted_content" is the only one.
        metadata: Comes back with the answer.
        top_logprobs: Only 0.
        store: Only false.
        previous_response_id: Never known.
        truncation: Only "disabled".
        chat_template_kwargs: As in chats.
        prompt_cache_key: Ignored: prefixes are found whoever sent them.
        prompt_cache_options: Wishes about the prompt cache.
        safety_identifier: Ignored, as is `user`.
        client_metadata: Ignored: notes of Codex to the hosted API.
        image: Ignored: says how images are packed, of which there are none.
        max_tool_calls: Ignored: it counts calls of tools that run on the server.
    """

    input: str | list[dict[str, object]]
    instructions: str | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    tools: list[dict[str, object]] | None = None
    tool_choice: str | dict[str, object] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    include: list[str] | None = None
    metadata: dict[str, str] | None = None
    stream_options: ResponsesStreamOptions | None = None
    top_logprobs: int | None = None
    store: bool | None = None
    previous_response_id: str | None = None
    truncation: Literal["auto", "disabled"] | None = None
    chat_template_kwargs: dict[str, object] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: CacheOptions | None = None
    safety_identifier: str | None = None
    client_metadata: dict[str, object] | None = None
    image: dict[str, object] | None = None
    max_tool_calls: int | None = None


class MessageItem(msgspec.Struct, frozen=True, kw_only=True):
    """One turn; its type may be left out."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[dict[str, object]]


class ReasoningItem(msgspec.Struct, frozen=True, kw_only=True):
    """Reasoning of an earlier answer, in the open or as this server sealed it."""

    summary: list[dict[str, object]] | None = None
    content: list[dict[str, object]] | None = None
    encrypted_content: str | None = None


class CallItem(msgspec.Struct, frozen=True, kw_only=True):
    """A call of an earlier answer."""

    call_id: str
    name: str
    arguments: str
    namespace: str | None = None


class CallOutputItem(msgspec.Struct, frozen=True, kw_only=True):
    """What a call returned."""

    call_id: str
    output: str | list[dict[str, object]]


class ResponsesTool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call.

    Attributes:
        strict: Holds the arguments to the schema.
        output_schema: Ignored, as it says nothing that the model is to write.
    """

    name: FunctionName
    description: str | None = None
    parameters: dict[str, object] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None
    allowed_callers: list[str] | None = None
    output_schema: dict[str, object] | None = None


class NamespaceTool(msgspec.Struct, frozen=True, kw_only=True):
    """Functions that share a namespace."""

    name: FunctionName
    tools: list[dict[str, object]]
    description: str | None = None


class NamedFunction(msgspec.Struct, frozen=True, kw_only=True):
    """The function that an answer must call."""

    name: str
    namespace: str | None = None


_OTHERS: Final[dict[str, Neutral]] = {
    "access_programs": ({}, {"cyber": "standard"}),
    "background": (False,),
    "background_options": ({}, {"completion_window": "soonest"}),
    "conversation": (),
    "prompt": (),
    "context_management": ([],),
    "moderation": (),
    "service_tier": ("auto", "default"),
    "prompt_cache_retention": ("in_memory",),
}

REFUSED_IN_RESPONSES: Final[dict[str, Neutral]] = {
    **dict.fromkeys(ChatRequest.__struct_fields__, ()),
    "n": (1,),
    "logprobs": (False,),
    **REFUSED_IN_CHAT,
    **_OTHERS,
}
"""What chats or the hosted API know, and this endpoint does not."""
