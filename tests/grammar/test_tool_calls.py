"""Calls that follow a format's grammar at random are read by the format's parser, each of them."""

from __future__ import annotations

import json

import pytest

from pegainfer_core.contract import StructuredOutput
from pegainfer_core.grammar import GrammarDesk
from pegainfer_core.text import TOOL_PARSERS, CallableFunction, CallGrammar, lark_text
from tests.grammar.grammars import EOS, begin, text_of, walk

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Köln", "Rome"]},
        "days": {"type": "integer", "minimum": 0, "maximum": 50},
        "both": {"type": "array", "items": {"$ref": "#/$defs/flag"}, "maxItems": 2},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
    "$defs": {"flag": {"type": "boolean"}},
}
FUNCTIONS = [
    CallableFunction("weather", SCHEMA, strict=True),
    CallableFunction("a.b/c-d", {"type": "object", "additionalProperties": False}),
]
TOOLS = [
    {"type": "function", "function": {"name": f.name, "parameters": dict(f.parameters)}}
    for f in FUNCTIONS
]


def form(name: str, functions: list[CallableFunction], *, many: bool) -> StructuredOutput:
    factory = TOOL_PARSERS[name]
    assert isinstance(factory, CallGrammar)
    rules = factory.call_grammar(functions, lark_text, many=many)
    return StructuredOutput(kind="grammar", text=f"start: calls\n{rules}")


def calls_in(name: str, text: str) -> list[tuple[str, dict[str, object]]]:
    parser = TOOL_PARSERS[name](TOOLS)
    deltas = [parser.feed(text), parser.flush()]
    assert not "".join(delta.content for delta in deltas).strip()
    found = [call for delta in deltas for call in delta.tool_calls]
    return [(str(call.name), json.loads(call.arguments)) for call in found]


@pytest.mark.parametrize("name", sorted(TOOL_PARSERS))
def test_every_call_is_read(desk: GrammarDesk, name: str) -> None:
    wish = form(name, FUNCTIONS, many=True)
    counts = set()
    for seed in range(5):
        ids = list(walk(begin(desk, wish), seed, max_tokens=1500))
        assert ids.pop() == EOS
        calls = calls_in(name, text_of(ids))
        counts.add(len(calls))
        for called, arguments in calls:
            if called == "a.b/c-d":
                assert arguments == {}
                continue
            assert called == "weather" and arguments["city"] in ("Köln", "Rome")
            assert 0 <= arguments["days"] <= 50 and arguments.keys() <= {"city", "days", "both"}
            assert all(type(flag) is bool for flag in arguments.get("both", []))
    assert max(counts) > 1 and min(counts) >= 1


@pytest.mark.parametrize("name", sorted(TOOL_PARSERS))
def test_one_call_where_one_is_asked_for(desk: GrammarDesk, name: str) -> None:
    wish = form(name, FUNCTIONS[1:], many=False)
    for seed in range(3):
        ids = list(walk(begin(desk, wish), seed, max_tokens=600))
        assert ids.pop() == EOS
        assert calls_in(name, text_of(ids)) == [("a.b/c-d", {})]


def test_texts_of_xml_parameters_are_free(desk: GrammarDesk) -> None:
    function = CallableFunction("note", {"properties": {"text": {"type": "string"}}})
    grammar = begin(desk, form("qwen3_coder", [function], many=False))
    text = (
        "<tool_call>\n<function=note>\n<parameter=text>\n</parameter>\n\n<b>\n</parameter>\n"
        "</function>\n</tool_call>"
    )
    for count, byte in enumerate(text.encode()):
        mask = grammar.mask(count)
        assert mask[byte // 32] >> byte % 32 & 1, text[:count]
        grammar.advance(byte)


def test_a_function_without_parameters_declared_takes_any_in_xml(desk: GrammarDesk) -> None:
    wish = form("qwen3_coder", [CallableFunction("any", {})], many=False)
    grammar = begin(desk, wish)
    text = "<tool_call>\n<function=any>\n<parameter=k>\n1\n</parameter>\n</function>\n</tool_call>"
    for count, byte in enumerate(text.encode()):
        grammar.mask(count)
        assert not grammar.error
        grammar.advance(byte)
    assert not grammar.error


def test_unknown_keywords_are_refused_for_strict_functions_only(desk: GrammarDesk) -> None:
    from tests.grammar.grammars import read, request

    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    lax = form("hermes", [CallableFunction("f", schema)], many=False)
    strict = form("hermes", [CallableFunction("f", schema, strict=True)], many=False)
    assert read(desk, request(lax))[0] == ""
    assert "uniqueItems" in read(desk, request(strict))[0]
