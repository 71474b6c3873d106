"""Values between tags are held to their parameter's schema, and read as that schema means them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from pegainfer_core.grammar import GrammarDesk
from pegainfer_core.text import TOOL_PARSERS, CallableFunction
from tests.grammar.grammars import EOS, begin, text_of, walk
from tests.grammar.test_tool_calls import form

DEFS = {
    "letter": {"type": "string", "enum": ["p", "q"]},
    "pair": {
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": {"$ref": "#/$defs/letter"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    "hop": {"$ref": "#/$defs/letter"},
}


def matches(pattern: str, longest: int) -> Callable[[object], bool]:
    return lambda value: (
        isinstance(value, str)
        and len(value) <= longest
        and re.search(pattern.removesuffix("$") + r"\Z" * pattern.endswith("$"), value, re.ASCII)
        is not None
    )


def is_pair(value: object) -> bool:
    return isinstance(value, dict) and type(value["a"]) is bool and value["b"] in ("p", "q")


def patterns(longest: int, *texts: str) -> list[tuple[dict[str, object], Callable[[object], bool]]]:
    return [
        ({"type": "string", "pattern": text, "maxLength": longest}, matches(text, longest))
        for text in texts
    ]


CASES: list[tuple[dict[str, object], Callable[[object], bool]]] = [
    ({"const": "x y"}, lambda v: v == "x y"),
    ({"const": 5}, lambda v: v == 5),
    ({"enum": ["1", "2"]}, lambda v: v in ("1", "2")),
    ({"enum": [1, 2.5]}, lambda v: v in (1, 2.5)),
    ({"enum": ["", "a", 1, None, True, "null"]}, lambda v: v in ("", "a", 1, None, True, "null")),
    ({"type": ["string", "null"], "enum": ["a", None]}, lambda v: v in ("a", None)),
    ({"type": "string", "maxLength": 3}, lambda v: isinstance(v, str) and len(v) <= 3),
    ({"type": "string", "minLength": 2, "maxLength": 2}, lambda v: len(str(v)) == 2),
    ({"type": "string", "maxLength": 0}, lambda v: v == ""),
    *patterns(9, r"^[A-Z]{2}\d/x$", r"^(?:a|b\/)+?$", r"^[\w\-./]+$", r"^\D\W\.$", r"^[^a-z\d]$"),
    *patterns(4, "ab", "a|b", "^ab?", r"\d$", "^$", r"\$b"),
    ({"$ref": "#/$defs/letter"}, lambda v: v in ("p", "q")),
    ({"$ref": "#/$defs/hop", "description": "d"}, lambda v: v in ("p", "q")),
    ({"$ref": "#/$defs/pair"}, is_pair),
    ({"anyOf": [{"$ref": "#/$defs/pair"}, {"type": "null"}]}, lambda v: v is None or is_pair(v)),
]


@pytest.mark.parametrize(("schema", "fits"), CASES, ids=[json.dumps(s) for s, _ in CASES])
def test_values_fit_their_schema(
    desk: GrammarDesk, schema: dict[str, object], fits: Callable[[object], bool]
) -> None:
    parameters = {"properties": {"v": schema}, "required": ["v"], "$defs": DEFS}
    function = CallableFunction("f", parameters)
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    for seed in range(4):
        wish = form("qwen3_coder", [function], many=False)
        ids = list(walk(begin(desk, wish), seed, max_tokens=600))
        assert ids.pop() == EOS
        parser = TOOL_PARSERS["qwen3_coder"](tools)
        calls = [*parser.feed(text_of(ids)).tool_calls, *parser.flush().tool_calls]
        (call,) = calls
        value = json.loads(call.arguments)["v"]
        assert fits(value), value


@pytest.mark.parametrize("bounds", [{"minLength": 3}, {"pattern": "^[^x]{3}"}])
def test_a_text_that_may_not_end_yet_does_not_run_on_behind_its_end(
    desk: GrammarDesk, bounds: dict[str, object]
) -> None:
    parameters = {"properties": {"v": {"type": "string", **bounds}}, "required": ["v"]}
    grammar = begin(desk, form("qwen3_coder", [CallableFunction("f", parameters)], many=False))
    text = b"<tool_call>\n<function=f>\n<parameter=v>\na\n</parameter"
    for count, byte in enumerate(text):
        mask = grammar.mask(count)
        assert mask[byte // 32] >> byte % 32 & 1, text[:count]
        grammar.advance(byte)
    mask, end = grammar.mask(len(text)), ord(">")
    assert not mask[end // 32] >> end % 32 & 1


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "string", "minLength": 2},
        {"type": "string", "pattern": "(?=a)b"},
        {"type": ["string", "null"], "maxLength": 1},
        {"$ref": "#/$defs/missing"},
        {"$ref": "https://example.org/schema"},
        {"$ref": "#/$defs/circle"},
        True,
    ],
    ids=json.dumps,
)
def test_what_cannot_be_said_leaves_texts_free(desk: GrammarDesk, schema: object) -> None:
    parameters = {
        "properties": {"v": schema},
        "required": ["v"],
        "$defs": {"circle": {"$ref": "#/$defs/circle"}},
    }
    grammar = begin(desk, form("qwen3_coder", [CallableFunction("f", parameters)], many=False))
    text = (
        "<tool_call>\n<function=f>\n<parameter=v>\nany\ntext <b>\n</parameter>\n</function>\n"
        "</tool_call>"
    )
    for count, byte in enumerate(text.encode()):
        mask = grammar.mask(count)
        assert mask[byte // 32] >> byte % 32 & 1, text[:count]
        grammar.advance(byte)
