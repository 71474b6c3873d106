"""From a request's wish to the text that llguidance reads. Imports llguidance for regexes only."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from pegainfer_core.grammar.closed_objects import with_closed_objects
from pegainfer_core.grammar.foreign_patterns import without_foreign_patterns
from pegainfer_core.grammar.schema_size import schema_problem
from pegainfer_core.grammar.tagged_unions import with_any_of_tags

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pegainfer_core.contract import StructuredOutput

__all__ = ["GrammarProblem", "grammar_text"]

MAX_CHOICES: Final = 10_000

_JSON: Final = re.compile(r"%json\s*(?=\{)")
_DECODER: Final = json.JSONDecoder()
_WHITESPACE: Final = r" |\n[ \t]{0,32}"
"""Between JSON tokens: a model that has nothing to say must not fill its context with blanks."""
_BEHIND_REASONING: Final = "start: BREAK? @body\nBREAK: /\\n{1,2}/\n"
"""Chat templates put empty lines there, and models learn to write them."""


class GrammarProblem(ValueError):
    """A grammar that cannot be followed; the text is a clause about the field it came in."""


def grammar_text(wish: StructuredOutput, *, behind_reasoning: bool) -> str:
    """The JSON text of llguidance's grammar for a wish.

    Args:
        wish: The form.
        behind_reasoning: Whether it follows reasoning, and a line break may stand before it.

    Raises:
        GrammarProblem: The wish is no JSON, empty or too large.
    """
    grammars = [{"name": "body", **_body(wish)}]
    if behind_reasoning:
        grammars.insert(0, {"name": "start", "lark_grammar": _BEHIND_REASONING})
    return json.dumps({"grammars": grammars})


def _body(wish: StructuredOutput) -> Mapping[str, object]:
    match wish.kind:
        case "json_object":
            return {"json_schema": _with_options({"type": "object"}, strict=True)}
        case "json_schema":
            return {"json_schema": _schema(wish)}
        case "choice":
            # One terminal: as a rule, each choice is an item of the parser, which takes 2,000.
            choices = " | ".join(map(_literal, _choices(wish.text)))
            return {"lark_grammar": f"start: CHOICE\nCHOICE: {choices}"}
        case "regex":
            from llguidance import regex_to_lark

            return {"lark_grammar": f"start: /{regex_to_lark(wish.text, '')}/"}
        case "grammar":
            return {"lark_grammar": _with_checked_schemas(wish.text)}


def _schema(wish: StructuredOutput) -> object:
    schema = _read(wish.text)
    _check(schema)
    schema = _followed(schema, strict=wish.strict)
    return _with_options(schema, strict=wish.strict) if isinstance(schema, dict) else schema


def _followed(schema: object, *, strict: bool) -> object:
    """A schema in words that llguidance follows."""
    schema = with_any_of_tags(with_closed_objects(schema))
    return schema if strict else without_foreign_patterns(schema)


def _check(schema: object) -> None:
    problem = schema_problem(schema)
    if problem is not None:
        raise GrammarProblem(f"has a schema that {problem}")


def _with_options(schema: Mapping[str, object], *, strict: bool) -> dict[str, object]:
    options = {"whitespace_pattern": _WHITESPACE, "lenient": not strict}
    return {**schema, "x-guidance": options}


def _with_checked_schemas(lark: str) -> str:
    """A grammar with the options of the schemas in it, none of which is too large.

    What is no JSON is left as it is, for llguidance to say so.
    """
    parts, place = [], 0
    for match in _JSON.finditer(lark):
        if match.start() < place:
            continue  # inside of a schema
        try:
            schema, end = _DECODER.raw_decode(lark, match.end())
        except (ValueError, RecursionError):
            continue
        _check(schema)
        if isinstance(schema, dict):
            given = schema.get("x-guidance")
            own = given if isinstance(given, dict) else {}
            schema = {**schema, "x-guidance": {"whitespace_pattern": _WHITESPACE, **own}}
            schema = _followed(schema, strict=own.get("lenient") is not True)
        parts += [lark[place : match.end()], json.dumps(schema, ensure_ascii=False)]
        place = end
    return "".join([*parts, lark[place:]])


def _choices(text: str) -> list[str]:
    choices = _read(text)
    if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
        raise GrammarProblem("must be a list of strings")
    if not choices or not all(choices):
        raise GrammarProblem("must hold at least one choice, and no empty ones")
    if len(choices) > MAX_CHOICES:
        raise GrammarProblem(f"has {len(choices)} choices, at most {MAX_CHOICES} are allowed")
    return list(dict.fromkeys(choices))


def _read(text: str) -> object:
    try:
        value: object = json.loads(text)
    except ValueError as error:
        raise GrammarProblem(f"is not JSON: {error}") from error
    except RecursionError as error:
        raise GrammarProblem("is nested too deeply") from error
    return value


def _literal(text: str) -> str:
    """A string of Lark, whose escapes are JSON's."""
    return json.dumps(text, ensure_ascii=False)
