"""What a request says about tools: checked, and refused where it asks for what is not there."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from pegainfer_server.api_error import invalid, unsupported
from pegainfer_server.parsing import Parsing
from pegainfer_server.protocol.decode import wrong_value
from pegainfer_server.protocol.tools import FunctionChoice, ToolDeclarations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_server.parsing import ChatParsers
    from pegainfer_server.prompt import Prompt
    from pegainfer_server.protocol.chat import ChatRequest

_SHOWN_CHARS = 40


def offered_tools(data: ChatRequest, parsers: ChatParsers) -> list[dict[str, object]]:
    """The tools that the model is told of; none when it must not call any.

    Raises:
        ApiError: 400, a malformed declaration or choice, or calls that nobody can read.
    """
    tools = checked_tools(data.tools)
    choice = data.tool_choice
    forced = forced_function(data)
    if isinstance(choice, str) and choice not in ("auto", "none", "required"):
        raise invalid(
            "tool_choice must be auto, none, required or a function, not "
            f"{choice[:_SHOWN_CHARS]!r}",
            "tool_choice",
        )
    if choice == "required" and not tools:
        raise invalid('tool_choice: "required" needs tools', "tool_choice")
    if forced is not None and forced not in _names(tools):
        raise invalid(f"tool_choice names {forced!r}, which is not among tools", "tool_choice")
    if not tools or choice == "none":
        return []
    if parsers.tools is None:
        raise unsupported(
            "tools: no format of tool calls is known for this model; "
            "start the server with --tool-call-parser",
            "tools",
        )
    return tools


def checked_tools(tools: list[dict[str, object]] | None) -> list[dict[str, object]]:
    """Declarations as they came, for templates print them.

    Raises:
        ApiError: 400 naming the field.
    """
    if not tools:
        return []
    try:
        msgspec.convert({"tools": tools}, ToolDeclarations)
    except msgspec.ValidationError as error:
        raise wrong_value(str(error)) from error
    return tools


def forced_function(data: ChatRequest) -> str | None:
    """The function that the answer must call, None if none is named.

    Raises:
        ApiError: 400, the choice has another form.
    """
    if not isinstance(data.tool_choice, dict):
        return None
    try:
        return msgspec.convert(data.tool_choice, FunctionChoice).function.name
    except msgspec.ValidationError as error:
        raise invalid(
            'tool_choice must be {"type": "function", "function": {"name": ...}}: ' + str(error),
            "tool_choice",
        ) from error


def _names(tools: Sequence[dict[str, object]]) -> list[str]:
    declared = msgspec.convert({"tools": tools}, ToolDeclarations).tools
    return [tool.function.name for tool in declared]


def parsing_of(
    data: ChatRequest, parsers: ChatParsers, tools: Sequence[dict[str, object]], prompt: Prompt
) -> Parsing | None:
    """How the answer is taken apart; None when all of it is content."""
    make_reasoning = None if data.separate_reasoning is False else parsers.reasoning
    make_tools = parsers.tools if tools else None
    if make_reasoning is None and make_tools is None:
        return None
    text, continued = prompt.text or "", prompt.continued
    return Parsing(
        reasoning=None if make_reasoning is None else partial(make_reasoning, text, continued),
        tools=None if make_tools is None else partial(make_tools, tools),
        one_call=data.parallel_tool_calls is False,
        hide_reasoning=data.include_reasoning is False,
        forced=isinstance(data.tool_choice, dict),
    )
