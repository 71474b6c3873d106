"""`/v1/messages`: the request, in Anthropic's form."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from pegainfer_server.protocol.chat import ChatRequest
from pegainfer_server.protocol.refused import REFUSED_IN_CHAT, Neutral
from pegainfer_server.protocol.sampling_fields import GenerationFields
from pegainfer_server.protocol.tools import FunctionName


class MessageParam(msgspec.Struct, frozen=True, kw_only=True):
    """One turn: text, or blocks, which are told apart where they are translated."""

    role: Literal["user", "assistant", "system"]
    content: str | list[dict[str, object]]


class ThinkingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the model thinks first.

    Attributes:
        type: "enabled" and "adaptive" are the same.
        budget_tokens: A wish that models here do not know of.
        display: "omitted" leaves thinking out of the answer.
    """

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: int | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of the answer.

    Attributes:
        effort: As `reasoning_effort` of chats.
        format: `{"type": "json_schema", "schema"}`, which the text is held to.
        task_budget: A wish, like `budget_tokens`.
    """

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: dict[str, object] | None = None
    task_budget: dict[str, object] | None = None


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Whether tools are called; `name` only with type "tool"."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class HostedFields(GenerationFields, frozen=True, kw_only=True):
    """Notes to the hosted API that are ignored on purpose: none shapes an answer.

    Attributes:
        cache_control: Prefixes are cached without being asked.
        betas: Names of features; what they would add is looked at by itself. Other ways to the
            hosted API have the next two in its place, and in that of a header.
        diagnostics: Would tell why a prefix was not found; none is told, which answers may do.
        user_profile_id: Whom the request is for, as are those below: nobody is billed here.
    """

    cache_control: dict[str, object] | None = None
    betas: list[str] | None = None
    anthropic_beta: list[str] | None = None
    anthropic_version: str | None = None
    diagnostics: dict[str, object] | None = None
    user_profile_id: str | None = None
    workspace_id: str | None = None
    billing_policy: dict[str, object] | None = None
    fallback_credit_token: str | dict[str, object] | None = None


class CountTokensRequest(HostedFields, frozen=True, kw_only=True):
    """A conversation whose tokens are counted.

    Attributes:
        messages: The conversation, oldest first; ends with a user's turn or is continued.
        system: Before the conversation.
        tools: Functions: `{"name", "description", "input_schema"}`.
        tool_choice: As in `ToolChoice`.
        thinking: Off by default.
        output_config: What is asked of the answer.
        chat_template_kwargs: As in chats.
    """

    messages: list[MessageParam]
    system: str | list[dict[str, object]] | None = None
    tools: list[dict[str, object]] | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingOptions | None = None
    output_config: OutputOptions | None = None
    chat_template_kwargs: dict[str, object] | None = None


class MessagesRequest(CountTokensRequest, frozen=True, kw_only=True):
    """Answer a conversation.

    Attributes:
        max_tokens: Most tokens to generate; cut to what the context has room for.
        stop_sequences: Texts that end the answer.
        metadata: Ignored.
    """

    max_tokens: Annotated[int, Meta(ge=1)]
    stop_sequences: list[str] | None = None
    metadata: dict[str, object] | None = None


class ToolUseBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A call of an earlier answer."""

    id: str
    name: str
    input: dict[str, object]


class ToolResultBlock(msgspec.Struct, frozen=True, kw_only=True):
    """What a call returned."""

    tool_use_id: str
    content: str | list[dict[str, object]] | None = None
    is_error: bool | None = None


class ThinkingBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Thinking of an earlier answer; signatures are not looked at."""

    thinking: str


class MessagesTool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call; `strict` holds its input to the schema."""

    name: FunctionName
    input_schema: dict[str, object]
    description: str | None = None
    strict: bool | None = None
    defer_loading: bool | None = None
    allowed_callers: list[str] | None = None
    input_examples: list[object] | None = None


class TokenCount(msgspec.Struct, frozen=True):
    """How long a prompt is."""

    input_tokens: int


_ALL_THINKING: Final = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}

_OTHERS: Final[dict[str, Neutral]] = {
    "container": (),
    "mcp_servers": ([],),
    # Thinking is kept or dropped by the template.
    "context_management": ({}, {"edits": []}, _ALL_THINKING),
    "compaction": (),
    "thread": (),
    "fallbacks": ([],),
    "inference_geo": ("global",),
    "output_format": (),
    "service_tier": ("auto", "standard_only"),
    "speed": ("standard",),
}

REFUSED_IN_MESSAGES: Final[dict[str, Neutral]] = {
    **dict.fromkeys(ChatRequest.__struct_fields__, ()),
    "n": (1,),
    "logprobs": (False,),
    **REFUSED_IN_CHAT,
    **_OTHERS,
}
"""What chats or the hosted API know, and this endpoint does not."""

REFUSED_IN_COUNTS: Final[dict[str, Neutral]] = {
    name: neutral
    for name, neutral in REFUSED_IN_MESSAGES.items()
    if name not in MessagesRequest.__struct_fields__
}
"""The same, for counting; what only shapes the answer changes no count."""
