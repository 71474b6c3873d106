"""What a request says about tools: checked, and refused where it asks for what is not there."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from pegainfer_server.api_error import invalid, unsupported
from pegainfer_server.parsing import Parsing
from pegainfer_server.protocol.decode import wrong_value
from pegainfer_server.protocol.tools import ToolDeclarations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_server.parsing import ChatParsers
    from pegainfer_server.prompt import Prompt
    from pegainfer_server.protocol.chat import ChatRequest

_SHOWN_CHARS = 40


def offered_tools(data: ChatRequest, parsers: ChatParsers) -> list[dict[str, object]]:
    """The tools that the model is told of; none when it must not call any.

    Raises:
        ApiError: 400, a malformed declaration, or a wish that needs a grammar or a parser.
    """
    tools = checked_tools(data.tools)
    choice = data.tool_choice
    if choice == "required" or isinstance(choice, dict):
        what = "a named function" if isinstance(choice, dict) else '"required"'
        raise unsupported(
            f"tool_choice: {what} needs output held to a grammar, which this server does not have "
            'yet; send "auto" or "none"',
            "tool_choice",
        )
    if choice not in (None, "auto", "none"):
        raise invalid(
            f"tool_choice must be auto or none, not {choice[:_SHOWN_CHARS]!r}", "tool_choice"
        )
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
        declared = msgspec.convert({"tools": tools}, ToolDeclarations).tools
    except msgspec.ValidationError as error:
        raise wrong_value(str(error)) from error
    for index, tool in enumerate(declared):
        if tool.function.strict:
            field = f"tools[{index}].function.strict"
            raise unsupported(
                f"{field}: true needs output held to a grammar, which this server does not have "
                "yet; send false",
                field,
            )
    return tools


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
    )
