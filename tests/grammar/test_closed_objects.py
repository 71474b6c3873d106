"""Objects hold what they declare and nothing else, unless they say so or are joined of parts."""

from __future__ import annotations

import json

import pytest

from pegainfer_core.contract import StructuredOutput
from pegainfer_core.grammar import GrammarDesk
from pegainfer_core.grammar.closed_objects import with_closed_objects
from tests.grammar.grammars import EOS, begin, text_of, walk

Schema = dict[str, object]
FLAG: Schema = {"type": "boolean"}
A: Schema = {"type": "object", "properties": {"a": FLAG}, "required": ["a"]}
ROOT: Schema = {
    "type": "object",
    "properties": {
        "in": A,
        "list": {"type": "array", "items": A, "minItems": 1, "maxItems": 1},
        "maybe": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]},
        "one": {"allOf": [{"$ref": "#/$defs/a"}], "description": "as older libraries write it"},
        "none": {"type": "object", "properties": {}},
    },
    "required": ["in", "list", "maybe", "one", "none"],
    "$defs": {"a": A},
}


def closed(value: object) -> bool:
    if isinstance(value, list):
        return all(map(closed, value))
    return not isinstance(value, dict) or value.keys() in ({"a"}, set())


@pytest.mark.parametrize("kind", ["strict", "lenient", "grammar"])
def test_objects_hold_nothing_undeclared(desk: GrammarDesk, kind: str) -> None:
    text = json.dumps(ROOT)
    form = StructuredOutput(kind="json_schema", text=text, strict=kind == "strict")
    if kind == "grammar":
        form = StructuredOutput(kind="grammar", text=f"start: %json {text}")
    for seed in range(4):
        ids = list(walk(begin(desk, form), seed, max_tokens=900))
        assert ids.pop() == EOS
        value = json.loads(text_of(ids))
        assert value.keys() == ROOT["properties"].keys()
        assert all(map(closed, value.values())), value


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {**A, "additionalProperties": True},
        {**A, "additionalProperties": FLAG},
        {**A, "patternProperties": {"^b": FLAG}},
        {**A, "unevaluatedProperties": True},
        {**A, "required": ["a", "b"]},
        {**A, "minProperties": 2},
        {"allOf": [A, {"properties": {"b": FLAG}}]},
        {**A, "anyOf": [{"properties": {"b": FLAG}}, {"required": ["c"]}]},
        {"$ref": "#/$defs/a", "properties": {"b": FLAG}, "$defs": {"a": A}},
        {**A, "if": {"required": ["b"]}, "then": {"required": ["c"]}},
        {"const": A},
        {"properties": {"p": {"enum": [A]}}, "additionalProperties": True},
        True,
    ],
    ids=str,
)
def test_others_stay_as_they_are(schema: object) -> None:
    assert with_closed_objects(schema) == schema
