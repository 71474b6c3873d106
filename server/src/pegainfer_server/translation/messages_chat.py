"""A request of `/v1/messages` as a chat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pegainfer_server.api_error import invalid
from pegainfer_server.protocol.messages_request import (
    MessagesRequest,
    MessagesTool,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from pegainfer_server.translation.chat_request import chat_request, response_format
from pegainfer_server.translation.checks import converted, refuse_unless, unknown_kind
from pegainfer_server.translation.conversation import Conversation
from pegainfer_server.translation.field_names import FieldNames

if TYPE_CHECKING:
    from pegainfer_server.protocol.chat import ChatRequest
    from pegainfer_server.protocol.messages_request import (
        CountTokensRequest,
        MessageParam,
        ToolChoice,
    )

NAMES: Final = {
    "stop": "stop_sequences",
    "reasoning_effort": "output_config.effort",
    "response_format.json_schema": "output_config.format",
    "response_format": "output_config.format",
}
"""What chats call the fields of a message."""

_BILLING: Final = "x-anthropic-billing-header:"
"""Begins a system block that is a client's note to the hosted API and differs in every request.

The hosted API keeps it from the model. Here it would also keep every prompt from being found in
the prefix cache.
"""

_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}


def messages_conversation(data: CountTokensRequest) -> Conversation:
    """The turns of the request.

    Raises:
        ApiError: 400, naming the block.
    """
    conversation = Conversation("input", "messages")
    contents = [message.content for message in data.messages]
    contents.append(data.system or "")
    conversation.check_size(sum(1 if isinstance(c, str) else len(c) for c in contents))
    if isinstance(data.system, str):
        if data.system and not data.system.startswith(_BILLING):
            conversation.instruct(data.system, "system")
    else:
        for index, block in enumerate(data.system or ()):
            if not str(block.get("text")).startswith(_BILLING):
                conversation.instruct(block, f"system[{index}]")
    for index, message in enumerate(data.messages):
        place = f"messages[{index}].content"
        if isinstance(message.content, str):
            _add_text(conversation, message.role, message.content, place)
        else:
            _add_blocks(conversation, message, place)
    return conversation


def messages_chat(data: CountTokensRequest, conversation: Conversation) -> ChatRequest:
    """The chat that answers the same.

    Its `max_tokens` is left to the context: see `routes.messages`.

    Raises:
        ApiError: 400, something that this server does not have.
    """
    thinking, output, choice = data.thinking, data.output_config, data.tool_choice
    thinks = thinking is not None and thinking.type != "disabled"
    switches = {"enable_thinking": thinks, "thinking": thinks}
    tools = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(data.tools or ())]
    with messages_names(conversation).told():
        return chat_request(
            data,
            conversation.messages,
            stop=data.stop_sequences if isinstance(data, MessagesRequest) else None,
            tools=tools,
            tool_choice=None if choice is None else _tool_choice(choice),
            parallel_tool_calls=not (choice and choice.disable_parallel_tool_use),
            reasoning_effort=None if output is None else output.effort,
            response_format=None if output is None else response_format(output.format),
            include_reasoning=None if thinking is None else thinking.display != "omitted",
            chat_template_kwargs={**switches, **(data.chat_template_kwargs or {})},
            continue_final_message=conversation.ends_with_assistant or None,
        )


def messages_names(conversation: Conversation) -> FieldNames:
    """Tells the errors of that chat."""
    return FieldNames(NAMES, conversation)


def _add_text(conversation: Conversation, role: str, text: str, place: str) -> None:
    if role == "user":
        conversation.ask(text, place)
    elif role == "assistant":
        conversation.answer(text, place)
    else:
        conversation.instruct(text, place)


def _add_blocks(conversation: Conversation, message: MessageParam, place: str) -> None:
    """Results of calls are turns of their own; what else a user says in a row is one turn."""
    content = message.content
    assert isinstance(content, list)
    asking = False
    for index, block in enumerate(content):
        where = f"{place}[{index}]"
        kind = block.get("type")
        if message.role == "assistant":
            _add_assistant_block(conversation, kind, block, where)
        elif message.role == "system":
            conversation.instruct(block, where)
        elif kind == "tool_result":
            _add_result(conversation, converted(block, ToolResultBlock, where), where)
            asking = False
        elif asking:
            conversation.more(block, where)
        else:
            conversation.ask(block, where)
            asking = True


def _add_assistant_block(
    conversation: Conversation, kind: object, block: dict[str, object], place: str
) -> None:
    if kind == "text":
        conversation.answer(block, place)
    elif kind == "thinking":
        conversation.think(converted(block, ThinkingBlock, place).thinking, place)
    elif kind == "tool_use":
        call = converted(block, ToolUseBlock, place)
        conversation.call(call.id, call.name, call.input, place)
    else:
        raise unknown_kind("blocks", kind, ["text", "thinking", "tool_use"], place)


def _add_result(conversation: Conversation, result: ToolResultBlock, place: str) -> None:
    """Templates know no errors, so the model reads that it is one."""
    content = result.content or ""
    if result.is_error:
        conversation.result(result.tool_use_id, "Error:", place)
        conversation.more(content, f"{place}.content")
    else:
        conversation.result(result.tool_use_id, content, f"{place}.content")


def _tool(declared: dict[str, object], place: str) -> dict[str, object]:
    """A function as chats declare it."""
    kind = declared.get("type")
    if kind not in (None, "custom"):
        raise unknown_kind("tools", kind, ["custom"], place)
    tool = converted(declared, MessagesTool, place)
    refuse_unless(tool.defer_loading, (False,), f"{place}.defer_loading")
    refuse_unless(tool.allowed_callers, ([], ["direct"]), f"{place}.allowed_callers")
    refuse_unless(tool.input_examples, ([],), f"{place}.input_examples")
    function: dict[str, object] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = tool.input_schema
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _tool_choice(choice: ToolChoice) -> str | dict[str, object]:
    if choice.type != "tool":
        return _CHOICES[choice.type]
    if choice.name is None:
        raise invalid("tool_choice.name is required with type tool", "tool_choice.name")
    return {"type": "function", "function": {"name": choice.name}}
