"""Which tool calls an answer must consist of, or may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from pegainfer_core.contract import StructuredOutput
from pegainfer_core.text import CallableFunction, CallGrammar, json_rule, lark_text
from pegainfer_server.api_error import invalid, unsupported
from pegainfer_server.protocol.tools import ToolDeclarations
from pegainfer_server.structured_request import Wish, contradiction, json_text
from pegainfer_server.tool_request import forced_function

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pegainfer_core.text import Tokenizer
    from pegainfer_server.parsing import ChatParsers
    from pegainfer_server.protocol.chat import ChatRequest

_SHOWN_CHARS: Final = 40
_ANY: Final = {"type": "object"}
_NO_PARAMETERS: Final = {"type": "object", "properties": {}, "additionalProperties": False}
"""What leaving `parameters` out means, as OpenAI has it."""


def tool_wish(
    data: ChatRequest,
    tools: Sequence[Mapping[str, object]],
    parsers: ChatParsers,
    tokenizer: Tokenizer,
    other: Wish | None,
) -> Wish | None:
    """The form of an answer, tool calls included.

    Calls are enforced where the choice is "required" or a function, and held to their schemas where
    a tool is strict. Beside another form, an answer is either that or calls.

    Args:
        data: The request.
        tools: Those offered to the model.
        parsers: Whose format calls are written in.
        tokenizer: The model's.
        other: The form that the request asks for otherwise.

    Raises:
        ApiError: 400, the format of calls cannot be enforced, or the wishes contradict each other.
    """
    functions = [_function(tool) for tool in _declared(tools)]
    forced = forced_function(data)
    must_call = forced is not None or data.tool_choice == "required"
    strict = any(function.strict for function in functions)
    if not functions or not (must_call or strict or other is not None):
        return other
    field = "tool_choice" if must_call or not strict else "tools"
    if other is not None and must_call:
        raise contradiction(field, other.field)
    grammar = parsers.tools
    if not isinstance(grammar, CallGrammar):
        raise unsupported(
            f"{field}: this model's format of tool calls cannot be enforced; send "
            'tool_choice "auto" or "none", and no strict tools',
            field,
        )
    if forced is not None:
        functions = [function for function in functions if function.name == forced]
    many = forced is None and data.parallel_tool_calls is not False
    marks = _Marks(tokenizer)
    calls = grammar.call_grammar(functions, marks.expression, many=many)
    if must_call:
        start = "start: calls\n"
    elif other is not None:
        start = f"start: calls | answer\nanswer: {_inline(other, field)}\n"
    else:
        start = _text_around_calls(grammar, marks, many=many)
    return Wish(StructuredOutput(kind="grammar", text=start + calls), field)


class _Marks:
    """Expressions of markers: a token of their own, or its letters."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def expression(self, marker: str) -> str:
        token_id = self._tokenizer.token_to_id(marker)
        text = lark_text(marker)
        return text if token_id is None else f"(<[{token_id}]> | {text})"

    def is_token(self, marker: str) -> bool:
        return self._tokenizer.token_to_id(marker) is not None


def _text_around_calls(grammar: CallGrammar, marks: _Marks, *, many: bool) -> str:
    """Rules of text with calls in it: the letters of a marker are no text."""
    first, *_ = grammar.openings
    if not marks.is_token(first):
        raise unsupported(
            f"tools: strict calls cannot be told from text, as this model has no token {first}; "
            'send strict: false, or tool_choice "required"',
            "tools",
        )
    held = " ".join(f"& ~/(?s:.*){_escaped(marker)}(?s:.*)/" for marker in grammar.openings)
    body = "(text? calls)* text?" if many else "text? (calls text?)?"
    return f"start: {body}\ntext: TEXT\nTEXT: /(?s:.+)/ {held}\n"


def _escaped(marker: str) -> str:
    """A marker in a regular expression of Lark."""
    return "".join(f"\\{char}" if char in "|/.()[]{}*+?^$\\" else char for char in marker)


def _inline(wish: Wish, field: str) -> str:
    """The expression of JSON in a grammar."""
    form = wish.form
    if form.kind == "json_object":
        return json_rule(_ANY, strict=True)
    if form.kind == "json_schema":
        try:
            schema: object = msgspec.json.decode(form.text)
        except (msgspec.DecodeError, RecursionError):
            schema = None
        if isinstance(schema, dict):
            return json_rule(schema, strict=form.strict)
    raise contradiction(field, wish.field)


def _declared(tools: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    declared = msgspec.convert({"tools": list(tools)}, ToolDeclarations)
    return [msgspec.to_builtins(tool.function) for tool in declared.tools]


def _function(declared: Mapping[str, object]) -> CallableFunction:
    parameters = declared.get("parameters")
    schema = parameters if isinstance(parameters, dict) else _NO_PARAMETERS
    name = str(declared["name"])
    json_text(schema, f"parameters of {name}")  # its size
    types = schema.get("type", "object")
    if types != "object" and not (isinstance(types, list) and "object" in types):
        raise invalid(
            f"parameters of {name} must be the schema of an object, not of type "
            f"{json_text(types, 'tools')[:_SHOWN_CHARS]}",
            "tools",
        )
    # What is no object is no call, whatever else the schema allows.
    return CallableFunction(name, {**schema, "type": "object"}, bool(declared.get("strict")))
