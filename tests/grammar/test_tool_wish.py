"""What a request's tools mean for the calls that an answer may hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pegainfer_server.api_error import ApiError
from pegainfer_server.parsing import ChatParsers
from pegainfer_server.protocol.chat import ChatRequest
from pegainfer_server.protocol.message import Message
from pegainfer_server.tool_request import offered_tools
from pegainfer_server.tool_wish import tool_wish

from pegainfer_core.contract import StructuredOutput
from pegainfer_core.grammar import GrammarDesk
from pegainfer_core.text import TOOL_PARSERS, Tokenizer
from tests.grammar.grammars import EOS, begin, ids_of, text_of, walk


def wish_of(
    folder: Path, parser: str, tools: list[dict[str, object]], choice: object = "required"
) -> StructuredOutput:
    data = ChatRequest(
        messages=[Message(role="user", content="x")],
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=False,
    )
    parsers = ChatParsers(tools=TOOL_PARSERS[parser])
    offered = offered_tools(data, parsers)
    wish = tool_wish(data, offered, parsers, Tokenizer.from_dir(folder), None)
    assert wish is not None
    return wish.form


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "now"}}])
@pytest.mark.parametrize("parser", sorted(TOOL_PARSERS))
@pytest.mark.parametrize("function", [{"name": "now"}, {"name": "now", "parameters": None}])
def test_a_function_without_parameters_takes_none(
    desk: GrammarDesk,
    tokenizer_folder: Path,
    parser: str,
    choice: object,
    function: dict[str, object],
) -> None:
    tools = [{"type": "function", "function": function}]
    form = wish_of(tokenizer_folder, parser, tools, choice)
    for seed in range(3):
        ids = list(walk(begin(desk, form), seed, max_tokens=600))
        assert ids.pop() == EOS
        reader = TOOL_PARSERS[parser](tools)
        calls = [*reader.feed(text_of(ids)).tool_calls, *reader.flush().tool_calls]
        assert [(call.name, json.loads(call.arguments)) for call in calls] == [("now", {})]


#: Schemas that also allow what is no object, or might.
LOOSE: list[dict[str, object]] = [
    {},
    {"properties": {}},
    {"type": ["object", "null"], "maxProperties": 1},
    {"anyOf": [{"type": "string"}, {"properties": {"a": {"type": "null"}}, "required": ["a"]}]},
    {"$ref": "#/$defs/a", "$defs": {"a": {"maxProperties": 1}}},
]


#: What stands before the arguments of a call of f.
BEFORE = {
    "hermes": '<tool_call>\n{"name": "f", "arguments": ',
    "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>",
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
    "<|tool_call_argument_begin|>",
}


@pytest.mark.parametrize("parser", sorted(BEFORE))
@pytest.mark.parametrize("parameters", LOOSE, ids=str)
def test_arguments_are_an_object_whatever_else_a_schema_allows(
    desk: GrammarDesk, tokenizer_folder: Path, parser: str, parameters: dict[str, object]
) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    grammar = begin(desk, wish_of(tokenizer_folder, parser, tools))
    text = BEFORE[parser].encode()
    for byte in text:
        grammar.advance(byte)
    allowed = ids_of(grammar.mask(len(text)))
    assert not grammar.error
    assert ord("{") in allowed
    assert set(allowed) <= set(b"{ \n")


@pytest.mark.parametrize("types", ["string", ["string", "null"], 5, None])
def test_parameters_of_another_type_are_refused(tokenizer_folder: Path, types: object) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": types}}}]
    with pytest.raises(ApiError, match="parameters of f must be the schema of an object") as error:
        wish_of(tokenizer_folder, "hermes", tools)
    assert error.value.detail.param == "tools"
