"""What a request's tools mean for the calls that an answer may hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pegainfer_server.parsing import ChatParsers
from pegainfer_server.protocol.chat import ChatRequest
from pegainfer_server.protocol.message import Message
from pegainfer_server.tool_request import offered_tools
from pegainfer_server.tool_wish import tool_wish

from pegainfer_core.grammar import GrammarDesk
from pegainfer_core.text import TOOL_PARSERS, Tokenizer
from tests.grammar.grammars import EOS, begin, text_of, walk


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
    data = ChatRequest(
        messages=[Message(role="user", content="x")],
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=False,
    )
    parsers = ChatParsers(tools=TOOL_PARSERS[parser])
    tokenizer = Tokenizer.from_dir(tokenizer_folder)
    wish = tool_wish(data, offered_tools(data, parsers), parsers, tokenizer, None)
    assert wish is not None
    for seed in range(3):
        ids = list(walk(begin(desk, wish.form), seed, max_tokens=600))
        assert ids.pop() == EOS
        reader = TOOL_PARSERS[parser](tools)
        calls = [*reader.feed(text_of(ids)).tool_calls, *reader.flush().tool_calls]
        assert [(call.name, json.loads(call.arguments)) for call in calls] == [("now", {})]
