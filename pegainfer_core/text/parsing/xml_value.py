"""A parameter's value between tags: what its schema lets the text be, and what a text stands for.

Texts of strings stand as they are, all other values as JSON. Knows nothing of the tags.
"""

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pegainfer_core.text.parsing.call_grammar import CallableFunction, json_rule, lark_text
from pegainfer_core.text.parsing.json_text import parse_json
from pegainfer_core.text.parsing.text_pattern import lark_pattern

__all__ = ["value_of", "value_rules"]

Schema = Mapping[str, object]

_NOTHING: Final[Schema] = MappingProxyType({})
_SHARED: Final = ("$defs", "definitions")
"""What references in a parameter's schema point to."""
_MAX_HOPS: Final = 8
_PYTHON_WORDS: Final = {"True": "true", "False": "false", "None": "null"}
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
    "string": (str,),
}


def _resolved(schema: object, root: Schema) -> Schema:
    """A schema with what it refers to at its outermost level; nothing where that is not found.

    Args:
        schema: Of a parameter.
        root: Of all arguments, which references point into.
    """
    for _ in range(_MAX_HOPS):
        if not isinstance(schema, Mapping):
            return _NOTHING
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        target = _target(reference, root)
        if not isinstance(target, Mapping):
            return beside
        schema = {**target, **beside}
    return _NOTHING


def value_of(text: str, schema: object, root: Schema) -> object:
    """The value that a text stands for; the text itself where the schema allows no other."""
    body = _resolved(schema, root)
    for choice, spelled in _choices(body).items():
        if choice == text:
            return spelled
    types = _types(body, root)
    if types and not types - {"string"}:
        return text
    try:
        value = parse_json(_PYTHON_WORDS.get(text, text))
    except ValueError:
        return text
    if not types:
        return value
    if "string" in types:
        # A text may spell anything; only nothing at all is told apart.
        return None if value is None and "null" in types else text
    fits = any(type(value) in _TYPES.get(name, ()) for name in types)
    return value if fits else text


def value_rules(rule: str, schema: object, function: CallableFunction, close: str) -> str | None:
    """Rules of which one, named `rule`, is a value with the text that ends it.

    Args:
        rule: Others begin with this name and an underscore.
        schema: Of the parameter.
        function: That is called.
        close: The text behind a value.

    Returns:
        None where the schema allows any text.
    """
    root = function.parameters
    body = _resolved(schema, root)
    choices = _choices(body)
    if choices:
        texts = " | ".join(map(lark_text, choices))
        return f"{rule}: ({texts}) {lark_text(close)}\n"
    types = _types(body, root)
    if types == {"string"}:
        return _text_rules(rule, body, close)
    if not types or "string" in types:
        return None
    shared = {name: root[name] for name in _SHARED if name in root}
    value = json_rule({**shared, **body}, strict=function.strict)
    return f"{rule}: {rule}_json {lark_text(close)}\n{rule}_json: {value}\n"


def _text_rules(rule: str, schema: Schema, close: str) -> str | None:
    bounds = _text_terminal(schema)
    if not bounds:
        return None
    terminal = f"{rule.upper()}_TEXT"
    # Else a text that is too short as yet would run on behind what should end it.
    tag = re.escape(close.strip()).replace("/", r"\/")
    held = f"~/(?s:.*{tag}.*)/"
    return f"{rule}[lazy]: {terminal} {lark_text(close)}\n{terminal}: {bounds} & {held}\n"


def _text_terminal(schema: Schema) -> str:
    """The expression of the texts that a string's schema allows, as far as that can be said.

    Returns:
        "" for any text.
    """
    shortest, longest = schema.get("minLength"), schema.get("maxLength")
    low = shortest if type(shortest) is int and shortest > 0 else 0
    high = longest if type(longest) is int and longest >= 0 else None
    parts = []
    if low or high is not None:
        parts.append(f"/(?s:.{{{low},{'' if high is None else high}}})/")
    pattern = schema.get("pattern")
    found = lark_pattern(pattern) if isinstance(pattern, str) else None
    if found is not None:
        parts.append(found)
    return " & ".join(parts)


def _target(reference: str, root: Schema) -> object:
    """What a reference within the schema points to."""
    if not reference.startswith("#/"):
        return None
    place: object = root
    for key in reference[2:].split("/"):
        if not isinstance(place, Mapping):
            return None
        place = place.get(key.replace("~1", "/").replace("~0", "~"))
    return place


def _choices(schema: Schema) -> dict[str, object]:
    """The only values a schema allows, by their texts; empty if it names none."""
    named = schema.get("enum")
    values = [schema["const"]] if "const" in schema else named if isinstance(named, list) else []
    # Texts last: what spells both is a text, as it is for schemas without choices.
    ordered = sorted(values, key=lambda value: isinstance(value, str))
    return {v if isinstance(v, str) else json.dumps(v, ensure_ascii=False): v for v in ordered}


def _types(schema: object, root: Schema) -> frozenset[str]:
    """Names of the types a schema names; none when it says nothing of them."""
    body = _resolved(schema, root)
    declared = body.get("type")
    if isinstance(declared, str):
        return frozenset({declared})
    if isinstance(declared, list):
        return frozenset(map(str, declared))
    choices = body.get("anyOf") or body.get("oneOf")
    if not isinstance(choices, list):
        return frozenset()
    found = [_types(choice, root) for choice in choices]
    return frozenset().union(*found) if all(found) else frozenset()
