"""Tools of `/v1/responses`, some of them in namespaces, as the flat functions of chats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pegainfer_server.protocol.responses_request import (
    NamedFunction,
    NamespaceTool,
    ResponsesTool,
)
from pegainfer_server.translation.checks import converted, refuse_unless, unknown_kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SEPARATOR: Final = "."


class FlatTool(NamedTuple):
    """A function, as chats declare it, and where the request has it."""

    declaration: dict[str, object]
    place: str
    name: str
    namespace: str | None

    @property
    def chat_name(self) -> str:
        """What the model knows it by."""
        return chat_name(self.name, self.namespace)


def chat_name(name: str, namespace: str | None) -> str:
    """What the model knows a function by."""
    return name if not namespace else f"{namespace}{_SEPARATOR}{name}"


def flat_tools(tools: Sequence[dict[str, object]] | None) -> list[FlatTool]:
    """All functions, in order.

    Raises:
        ApiError: 400, naming the tool.
    """
    found: list[FlatTool] = []
    for index, tool in enumerate(tools or ()):
        place = f"tools[{index}]"
        kind = tool.get("type")
        if kind == "function":
            found.append(_function(tool, place))
        elif kind == "namespace":
            found += _namespace(converted(tool, NamespaceTool, place), place)
        else:
            raise unknown_kind("tools", kind, ["function", "namespace"], place)
    return found


def chosen_tool(choice: str | dict[str, object] | None) -> str | dict[str, object] | None:
    """A `tool_choice` as chats have it.

    Raises:
        ApiError: 400, a choice of another type.
    """
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") != "function":
        raise unknown_kind("choices", choice.get("type"), ["function"], "tool_choice")
    chosen = converted(choice, NamedFunction, "tool_choice")
    name = chat_name(chosen.name, chosen.namespace)
    return {"type": "function", "function": {"name": name}}


def _namespace(space: NamespaceTool, place: str) -> Iterator[FlatTool]:
    """Its functions, the first of which also tells what the namespace is for."""
    description = space.description
    for index, tool in enumerate(space.tools):
        where = f"{place}.tools[{index}]"
        if tool.get("type") != "function":
            raise unknown_kind("tools of a namespace", tool.get("type"), ["function"], where)
        yield _function(tool, where, space.name, description)
        description = None


def _function(
    declared: dict[str, object],
    place: str,
    namespace: str | None = None,
    description: str | None = None,
) -> FlatTool:
    tool = converted(declared, ResponsesTool, place)
    refuse_unless(tool.defer_loading, (False,), f"{place}.defer_loading")
    refuse_unless(tool.allowed_callers, ([], ["direct"]), f"{place}.allowed_callers")
    function: dict[str, object] = {"name": chat_name(tool.name, namespace)}
    words = [text for text in (description, tool.description) if text]
    if words:
        function["description"] = "\n".join(words)
    if tool.parameters is not None:
        function["parameters"] = tool.parameters
    if tool.strict:
        function["strict"] = True
    declaration: dict[str, object] = {"type": "function", "function": function}
    return FlatTool(declaration, place, tool.name, namespace)
