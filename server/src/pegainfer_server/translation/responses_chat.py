"""A request of `/v1/responses` as a chat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pegainfer_server.api_error import invalid, unsupported
from pegainfer_server.protocol.responses_request import (
    CallItem,
    CallOutputItem,
    MessageItem,
    ReasoningItem,
)
from pegainfer_server.translation.chat_request import chat_request, response_format
from pegainfer_server.translation.checks import converted, refuse_unless, unknown_kind
from pegainfer_server.translation.conversation import Conversation
from pegainfer_server.translation.field_names import FieldNames
from pegainfer_server.translation.responses_tools import chat_name, chosen_tool, flat_tools
from pegainfer_server.translation.sealed_reasoning import unseal

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_server.protocol.chat import ChatRequest
    from pegainfer_server.protocol.responses_request import ResponsesRequest

NAMES: Final = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "response_format.json_schema": "text.format",
    "response_format": "text.format",
}
"""What chats call the fields of a response."""

SEALED_REASONING: Final = "reasoning.encrypted_content"


def responses_conversation(data: ResponsesRequest) -> Conversation:
    """The turns of the input.

    Raises:
        ApiError: 400, naming the item.
    """
    conversation = Conversation("arguments", "input")
    if data.instructions:
        conversation.instruct(data.instructions, "instructions")
    if isinstance(data.input, str):
        conversation.ask(data.input, "input")
        return conversation
    conversation.check_size(len(data.input))
    for index, item in enumerate(data.input):
        place = f"input[{index}]"
        kind = item.get("type") or "message"
        add = _ITEMS.get(kind) if isinstance(kind, str) else None
        if add is None:
            raise unknown_kind("items", kind, list(_ITEMS), place)
        add(conversation, item, place)
    return conversation


def responses_chat(data: ResponsesRequest, conversation: Conversation) -> ChatRequest:
    """The chat that answers the same.

    Raises:
        ApiError: 400, something that only a server with a memory or with tools of its own can do.
    """
    _check(data)
    tools = [tool.declaration for tool in flat_tools(data.tools)]
    with responses_names(data, conversation).told():
        return chat_request(
            data,
            conversation.messages,
            max_completion_tokens=data.max_output_tokens,
            tools=tools,
            tool_choice=chosen_tool(data.tool_choice),
            parallel_tool_calls=data.parallel_tool_calls,
            reasoning_effort=None if data.reasoning is None else data.reasoning.effort,
            response_format=None if data.text is None else response_format(data.text.format),
            chat_template_kwargs=data.chat_template_kwargs,
        )


def responses_names(data: ResponsesRequest, conversation: Conversation) -> FieldNames:
    """Tells the errors of that chat."""
    return FieldNames(NAMES, conversation, [tool.place for tool in flat_tools(data.tools)])


def _check(data: ResponsesRequest) -> None:
    if data.previous_response_id is not None:
        raise unsupported(
            "previous_response_id is not supported: this server is stateless and keeps no "
            "responses; send the whole history in input",
            "previous_response_id",
        )
    if data.store:
        raise unsupported(
            "store: true is not supported: this server is stateless and keeps no responses; "
            "send false",
            "store",
        )
    for name in data.include or ():
        if name != SEALED_REASONING:
            raise unsupported(
                f"include: {name[:60]!r} is not supported; only {SEALED_REASONING!r} is", "include"
            )
    refuse_unless(data.truncation, ("disabled",), "truncation")
    refuse_unless(data.top_logprobs, (0,), "top_logprobs")
    _check_options(data)


def _check_options(data: ResponsesRequest) -> None:
    if data.prompt_cache_options is not None:
        options = data.prompt_cache_options
        refuse_unless(options.prewarm, (False,), "prompt_cache_options.prewarm")
        compared = options.comparison_response_id
        refuse_unless(compared, (), "prompt_cache_options.comparison_response_id")
    if data.stream_options is not None:
        obfuscation = data.stream_options.include_obfuscation
        refuse_unless(obfuscation, (False,), "stream_options.include_obfuscation")
    if data.reasoning is not None:
        refuse_unless(data.reasoning.context, ("auto", "current_turn"), "reasoning.context")
        refuse_unless(data.reasoning.mode, ("standard",), "reasoning.mode")
        refuse_unless(data.reasoning.summary, ("auto", "detailed"), "reasoning.summary")
        older = data.reasoning.generate_summary
        refuse_unless(older, ("auto", "detailed"), "reasoning.generate_summary")
    if data.text is not None:
        refuse_unless(data.text.verbosity, ("medium",), "text.verbosity")


def _add_message(conversation: Conversation, item: dict[str, object], place: str) -> None:
    message = converted(item, MessageItem, place)
    content = f"{place}.content"
    if message.role == "user":
        conversation.ask(message.content, content)
    elif message.role == "assistant":
        conversation.answer(message.content, content)
    else:
        conversation.instruct(message.content, content)


def _add_reasoning(conversation: Conversation, item: dict[str, object], place: str) -> None:
    """The text itself, else the same text sealed, else what a summary says of it."""
    reasoning = converted(item, ReasoningItem, place)
    if reasoning.content:
        text = _texts(reasoning.content, f"{place}.content")
    elif reasoning.encrypted_content:
        unsealed = unseal(reasoning.encrypted_content)
        if unsealed is None:
            raise invalid(
                f"{place}.encrypted_content was not made by this server; leave the item out",
                f"{place}.encrypted_content",
            )
        text = unsealed
    else:
        text = _texts(reasoning.summary or [], f"{place}.summary")
    if text:
        conversation.think(text, place)


def _texts(parts: list[dict[str, object]], place: str) -> str:
    texts: list[str] = []
    for index, part in enumerate(parts):
        text = part.get("text")
        if not isinstance(text, str):
            where = f"{place}[{index}].text"
            raise invalid(f"{where} must be a string", where)
        texts.append(text)
    return "\n".join(texts)


def _add_call(conversation: Conversation, item: dict[str, object], place: str) -> None:
    call = converted(item, CallItem, place)
    name = chat_name(call.name, call.namespace)
    conversation.call(call.call_id, name, call.arguments, place)


def _add_output(conversation: Conversation, item: dict[str, object], place: str) -> None:
    result = converted(item, CallOutputItem, place)
    conversation.result(result.call_id, result.output, f"{place}.output")


_ITEMS: Final[dict[str, Callable[[Conversation, dict[str, object], str], None]]] = {
    "message": _add_message,
    "reasoning": _add_reasoning,
    "function_call": _add_call,
    "function_call_output": _add_output,
}
