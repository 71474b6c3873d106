"""`/v1/responses`: the answer, and the events of a streamed one."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from pegainfer_server.protocol.usage import Usage

JsonObject = dict[str, object]
Status = Literal["in_progress", "completed", "incomplete", "failed"]


class ReasoningText(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning_text"
):
    """Reasoning as the model wrote it."""

    text: str


class SummaryText(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="summary_text"):
    """The same text for who asked for a summary."""

    text: str


class OutputText(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="output_text"):
    """Text of an answer."""

    text: str
    annotations: list[object] = []
    logprobs: list[object] = []


class OutputReasoning(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning"):
    """What the model thought.

    Attributes:
        encrypted_content: The text sealed, for clients that send back only this; null unless asked
            for.
    """

    id: str
    status: Status
    summary: list[SummaryText]
    content: list[ReasoningText]
    encrypted_content: str | None = None


class OutputMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """What the model said."""

    id: str
    status: Status
    content: list[OutputText]
    role: str = "assistant"


class OutputCall(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call"):
    """A function that is to be called.

    Attributes:
        arguments: JSON text, as the model wrote it.
        namespace: Of a function that was declared in one.
    """

    id: str
    status: Status
    call_id: str
    name: str
    arguments: str
    namespace: str | UnsetType = UNSET


OutputItem = OutputReasoning | OutputMessage | OutputCall
OutputPart = ReasoningText | SummaryText | OutputText


class InputTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Share of the prompt that came from the prefix cache; writing to it is not counted."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Share of the answer that is reasoning, its markers included."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts under this API's names."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


def response_usage(usage: Usage) -> ResponseUsage:
    """The counts of a chat."""
    details = usage.completion_tokens_details
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputTokensDetails(
            cached_tokens=usage.prompt_tokens_details.cached_tokens
        ),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputTokensDetails(
            reasoning_tokens=0 if details is UNSET else details.reasoning_tokens
        ),
        total_tokens=usage.total_tokens,
    )


class ResponseFault(msgspec.Struct, frozen=True, kw_only=True):
    """Why a response failed."""

    code: str
    message: str


class IncompleteDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Why a response is incomplete."""

    reason: str


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """A response, from the first event to the last; most fields echo the request."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None
    status: Status
    error: ResponseFault | None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    previous_response_id: None = None
    reasoning: dict[str, str | None]
    store: Literal[False] = False
    temperature: float
    text: JsonObject
    tool_choice: str | JsonObject
    tools: list[JsonObject]
    top_p: float
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None


class ResponseEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event about the response as a whole."""

    type: str
    sequence_number: int
    response: Response


class ItemEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An item begins or ends."""

    type: str
    sequence_number: int
    output_index: int
    item: OutputItem


class InsideEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something happens inside an item; each type of event has the fields it needs."""

    type: str
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int | UnsetType = UNSET
    summary_index: int | UnsetType = UNSET
    part: OutputPart | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    logprobs: list[object] | UnsetType = UNSET
