"""Unions of classes that a tag tells apart are followed, and others that may overlap refused."""

from __future__ import annotations

import json

import pytest

from pegainfer_core.contract import StructuredOutput
from pegainfer_core.grammar import GrammarDesk
from tests.grammar.grammars import EOS, begin, read, request, text_of, walk

Schema = dict[str, object]


def tagged(tag: object, *, required: bool = True, **properties: object) -> Schema:
    return {
        "type": "object",
        "properties": {"kind": tag, **properties},
        "required": ["kind"] if required else [],
        "additionalProperties": False,
    }


def union(*names: str, **more: object) -> Schema:
    return {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in names], **more}


LEAF = tagged({"const": "leaf"})
PAIR = tagged({"enum": ["pair"]}, both=union("leaf", "pair"))
WORD = tagged({"$ref": "#/$defs/word"}, flag={"type": "boolean"})
DEFS: Schema = {
    "leaf": LEAF,
    "pair": PAIR,
    "word": {"enum": ["one", "two"], "type": "string"},
    "words": WORD,
    "other": tagged({"const": "other"}, required=False),
    "bare": tagged({"const": "bare"}, required=False),
    "hop": {"$ref": "#/$defs/leaf"},
    "twin": tagged({"enum": ["twin", "leaf"]}),
    "free": tagged({"type": "string"}),
    "text": {"type": "string"},
}
OVERLAP = (
    "cannot be followed: branches of oneOf may overlap; send anyOf, or tell objects apart by the "
    "const of a required property"
)
BY_KIND = {"discriminator": {"propertyName": "kind"}}


@pytest.mark.parametrize(
    ("schema", "kinds"),
    [
        (union("leaf", "pair"), {"leaf", "pair"}),
        (union("hop", "words"), {"leaf", "one", "two"}),
        (union("other", "bare", **BY_KIND), {"other", "bare"}),
        (union("leaf", "other", **BY_KIND), {"leaf", "other"}),
        ({"oneOf": [{**LEAF}, {"$ref": "#/$defs/words"}]}, {"leaf", "one", "two"}),
    ],
    # Of sets Python makes another text in each process, and tests must have the same names in all.
    ids=["references", "unions", "one tag", "tags and more", "written out"],
)
@pytest.mark.parametrize("in_grammar", [False, True])
def test_tags_tell_branches_apart(
    desk: GrammarDesk, schema: Schema, kinds: set[str], in_grammar: bool
) -> None:
    text = json.dumps({**schema, "$defs": DEFS})
    form = StructuredOutput(kind="json_schema", text=text)
    if in_grammar:
        form = StructuredOutput(kind="grammar", text=f"start: %json {text}")
    found = set()
    for seed in range(12):
        ids = list(walk(begin(desk, form), seed, max_tokens=900))
        if ids.pop() == EOS:
            found.add(json.loads(text_of(ids))["kind"])
    assert found <= kinds
    assert len(found) > 1


@pytest.mark.parametrize(
    "schema",
    [
        union("leaf", "twin"),
        union("leaf", "free"),
        union("leaf", "leaf"),
        union("other", "bare"),
        union("leaf", "text"),
        {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    ],
    ids=str,
)
def test_branches_that_may_overlap_are_refused(desk: GrammarDesk, schema: Schema) -> None:
    text = json.dumps({**schema, "$defs": DEFS})
    problem, _ = read(desk, request(StructuredOutput(kind="json_schema", text=text)))
    assert problem.endswith(OVERLAP)


def test_a_branch_that_is_not_there_is_named(desk: GrammarDesk) -> None:
    text = json.dumps({**union("leaf", "missing"), "$defs": DEFS})
    problem, _ = read(desk, request(StructuredOutput(kind="json_schema", text=text)))
    assert "missing" in problem


def test_a_union_of_data_is_no_schema(desk: GrammarDesk) -> None:
    text = json.dumps({"const": union("leaf", "pair"), "$defs": DEFS})
    form = StructuredOutput(kind="json_schema", text=text)
    ids = list(walk(begin(desk, form), 0))
    assert "oneOf" in text_of(ids)
