"""Grammars that nobody can follow, or that cost too much: refused soon, and nobody else suffers."""

from __future__ import annotations

import json
import threading
import time

import pytest

import pegainfer_core.grammar.compiler as compiler_module
import pegainfer_core.grammar.desk as desk_module
from pegainfer_core.contract import StructuredOutput
from pegainfer_core.contract.structured_output import MAX_GRAMMAR_CHARS
from pegainfer_core.grammar import CompiledGrammar, GrammarCompiler, GrammarDesk
from pegainfer_core.grammar.schema_size import MAX_PROPERTIES, schema_problem
from tests.grammar.grammars import VOCAB, begin, compiler, read, request, text_of, walk

YES = StructuredOutput(kind="choice", text='["yes"]')
MAX_REFUSAL_S = 3.0


def schema(value: object) -> StructuredOutput:
    return StructuredOutput(kind="json_schema", text=json.dumps(value))


def nested(depth: int) -> str:
    return '{"type":"object","properties":{"a":' * depth + "{}" + "}}" * depth


HOSTILE = {
    "no JSON": (StructuredOutput(kind="json_schema", text="{"), "not JSON"),
    "no schema": (schema([1]), "must be a JSON object"),
    "wrong type": (schema({"type": "strin"}), "strin"),
    "unknown keyword": (schema({"type": "array", "uniqueItems": True}), "uniqueItems"),
    "not": (schema({"not": {"type": "string"}}), "not"),
    "nothing fits": (schema(False), "Unsatisfiable"),
    "itself": (schema({"$ref": "#"}), "no answer"),
    "a ring": (
        schema({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"},
                "b": {"$ref": "#/$defs/a"}}}),
        "no answer",
    ),
    "no such place": (schema({"$ref": "#/$defs/x"}), "cannot be followed"),
    "elsewhere": (schema({"$ref": "http://localhost:1/x.json"}), "cannot be followed"),
    "deep": (StructuredOutput(kind="json_schema", text=nested(60)), "deeper"),
    "very deep": (StructuredOutput(kind="json_schema", text=nested(3000)), "nested too deeply"),
    "wide": (
        schema({"properties": {f"p{i}": {} for i in range(MAX_PROPERTIES + 1)}}),
        "properties",
    ),
    "many values": (schema({"enum": [0] * 41_000}), "values"),
    "large": (StructuredOutput(kind="json_schema", text=" " * 10_000_000), "characters"),
    "wide in a grammar": (
        StructuredOutput(
            kind="grammar",
            text="start: %json "
            + json.dumps({"properties": {f"p{i}": {} for i in range(MAX_PROPERTIES + 1)}}),
        ),
        "properties",
    ),
    "group": (StructuredOutput(kind="regex", text="(a"), "unclosed"),
    "look-ahead": (StructuredOutput(kind="regex", text="(?=a)b"), "look-around"),
    "back reference": (StructuredOutput(kind="regex", text=r"(a)\1"), "backreferences"),
    "no letter": (StructuredOutput(kind="regex", text=r"[^\s\S]"), "no answer"),
    "no regex": (StructuredOutput(kind="regex", text=""), "empty"),
    "no choice": (StructuredOutput(kind="choice", text="[]"), "at least one choice"),
    "an empty choice": (StructuredOutput(kind="choice", text='["a", ""]'), "empty ones"),
    "a number": (StructuredOutput(kind="choice", text="[1]"), "list of strings"),
    "10001 choices": (
        StructuredOutput(kind="choice", text=json.dumps([f"c{i}" for i in range(10_001)])),
        "10001 choices",
    ),
    "no rule": (StructuredOutput(kind="grammar", text="start: foo"), "foo"),
    "no Lark": (StructuredOutput(kind="grammar", text="((("), "cannot be followed"),
    "endless": (StructuredOutput(kind="grammar", text="start: a\na: b\nb: a"), "no answer"),
    "deep Lark": (
        StructuredOutput(kind="grammar", text=f'start: {"(" * 3000}"a"{")" * 3000}'),
        "nested",
    ),
    "no kind": (StructuredOutput(kind="ebnf", text="x"), "no kind"),  # type: ignore[arg-type]
    "a text too much": (StructuredOutput(kind="json_object", text="x"), "takes none"),
    "ids": (StructuredOutput(kind="regex", text="a", reasoning_end_id=VOCAB), str(VOCAB)),
    "a start alone": (StructuredOutput(kind="regex", text="a", reasoning_start_id=1), "no reason"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_refused_soon_with_the_reason(desk: GrammarDesk, name: str) -> None:
    form, words = HOSTILE[name]
    started_s = time.monotonic()
    problem, grammar = read(desk, request(form))
    assert time.monotonic() - started_s < MAX_REFUSAL_S
    assert words in problem and grammar is None
    assert len(problem) < 500


@pytest.mark.parametrize(
    "text", ["(a+)+b" * 200, "(x{40,1000}){1,1000}", "(.*a.{30}b.*){20}", "(a|aa|aaa|b){90,5000}c"]
)
def test_regular_expressions_that_others_choke_on_are_followed(
    desk: GrammarDesk, text: str
) -> None:
    grammar = begin(desk, StructuredOutput(kind="regex", text=text))
    assert len(list(walk(grammar, 0, max_tokens=30, ends=()))) == 30


def test_afterwards_good_ones_are_read_as_before(desk: GrammarDesk) -> None:
    assert text_of(list(walk(begin(desk, YES), 0))) == "yes"


def test_keywords_are_left_out_on_demand(desk: GrammarDesk) -> None:
    text = json.dumps({"type": "array", "uniqueItems": True, "maxItems": 1})
    grammar = begin(desk, StructuredOutput(kind="json_schema", text=text, strict=False))
    assert next(walk(grammar, 0)) == ord("[")


FOREIGN = [
    r"^(?=.*a)b",
    "(?!a)b",
    "(?<=a)b",
    "(?<!a)b",
    r"(a)\1",
    r"(?<n>a)\k<n>",
    r"\bab\b",
    r"\cA",
]


@pytest.mark.parametrize("pattern", FOREIGN)
def test_patterns_that_cannot_be_followed_are_left_out_on_demand(
    desk: GrammarDesk, pattern: str
) -> None:
    text = {"type": "string", "pattern": pattern, "maxLength": 3}
    schema = {
        "type": "object",
        "properties": {"pattern": {"anyOf": [{"$ref": "#/$defs/t"}]}},
        "required": ["pattern"],
        "additionalProperties": False,
        "$defs": {"t": text},
    }
    lark = {**schema, "x-guidance": {"lenient": True}}
    forms = [
        StructuredOutput(kind="json_schema", text=json.dumps(schema), strict=False),
        StructuredOutput(kind="grammar", text=f"start: %json {json.dumps(lark)}"),
    ]
    for form in forms:
        value = json.loads(text_of(list(walk(begin(desk, form), 1))))
        assert len(value["pattern"]) <= 3
    strict = StructuredOutput(kind="json_schema", text=json.dumps(schema))
    assert "cannot be followed" in read(desk, request(strict))[0]


def test_what_only_looks_like_a_pattern_stays(desk: GrammarDesk) -> None:
    schema = {"const": {"pattern": "(?=a)"}}
    form = StructuredOutput(kind="json_schema", text=json.dumps(schema), strict=False)
    assert json.loads(text_of(list(walk(begin(desk, form), 1)))) == schema["const"]
    kept = {"type": "string", "pattern": r"^\(\?=[ab]$"}
    form = StructuredOutput(kind="json_schema", text=json.dumps(kept), strict=False)
    assert json.loads(text_of(list(walk(begin(desk, form), 1)))) in ("(?=a", "(?=b")


def test_a_schema_of_the_largest_size_is_none_too_large() -> None:
    assert schema_problem({"properties": {f"p{i}": {} for i in range(MAX_PROPERTIES)}}) is None
    assert YES.problem(VOCAB) is None
    assert StructuredOutput(kind="regex", text="a" * MAX_GRAMMAR_CHARS).problem(VOCAB) is None


def test_a_grammar_whose_first_mask_is_slow_is_refused(
    desk: GrammarDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler_module, "MAX_FIRST_MASK_S", -1.0)
    problem, _ = read(desk, request(StructuredOutput(kind="regex", text="unread before")))
    assert "first mask takes too long" in problem


def test_reading_that_takes_too_long_is_given_up(
    tokenizer_folder: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread is replaced, so that others are served meanwhile."""
    monkeypatch.setattr(desk_module, "MAX_READING_S", 0.05)
    gate, made = threading.Event(), compiler(tokenizer_folder)

    class Stuck(GrammarCompiler):
        def compile(self, wish: StructuredOutput) -> CompiledGrammar:
            if wish.kind == "regex":
                gate.wait(20)
            return made.compile(wish)

        def prepare(self) -> None:
            made.prepare()

    made.prepare()
    desk = GrammarDesk(Stuck(lambda: "", VOCAB))
    for number in range(3):
        problem, _ = read(desk, request(StructuredOutput(kind="regex", text=f"a{number}")))
        assert "takes longer" in problem
    monkeypatch.setattr(desk_module, "MAX_READING_S", 20.0)
    assert read(desk, request(YES))[0] == ""
    gate.set()
    desk.close()


def test_without_the_package_the_refusal_says_what_to_install(
    tokenizer_folder: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler_module.importlib.util, "find_spec", lambda name: None)
    problem, _ = read(GrammarDesk(compiler(tokenizer_folder)), request(YES))
    assert "pip install 'pegainfer[grammar]'" in problem


def test_a_folder_without_a_tokenizer_is_named(tmp_path: object) -> None:
    problem, _ = read(GrammarDesk(compiler(tmp_path)), request(YES))
    assert "tokenizer" in problem and str(tmp_path) in problem
