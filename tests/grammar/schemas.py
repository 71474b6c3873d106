"""Schemas at random, and whether a value is what one asks for: a second, plain reading of them."""

from __future__ import annotations

import re

from hypothesis import strategies as st

Schema = dict[str, object]

_NAMES = st.sampled_from(["a", "b", "long name", 'q"uote', "ü"])


def _objects(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    properties = st.dictionaries(_NAMES, inner, max_size=3)

    def complete(made: dict[str, Schema]) -> st.SearchStrategy[Schema]:
        needed = st.lists(st.sampled_from(sorted(made)), unique=True) if made else st.just([])
        return needed.map(
            lambda names: {
                "type": "object",
                "properties": made,
                "required": names,
                "additionalProperties": False,
            }
        )

    return properties.flatmap(complete)


_LEAVES = st.one_of(
    st.builds(
        lambda low, size: {"type": "integer", "minimum": low, "maximum": low + size},
        st.integers(-20, 20),
        st.integers(0, 300),
    ),
    st.builds(lambda n: {"type": "string", "maxLength": n}, st.integers(0, 6)),
    st.just({"type": "string", "pattern": "^[a-c]{2,4}x?$"}),
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.builds(
        lambda values: {"enum": values},
        st.lists(st.sampled_from(["x", "y y", 1, None, True]), min_size=1, unique_by=repr),
    ),
    st.just({"const": {"k": [1, "é"]}}),
)


def _wider(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    return st.one_of(
        _objects(inner),
        st.builds(
            lambda item, low: {
                "type": "array", "items": item, "minItems": low, "maxItems": low + 2,
            },
            inner,
            st.integers(0, 2),
        ),
        st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=2)),
    )  # fmt: skip


SCHEMAS = st.recursive(_LEAVES, _wider, max_leaves=5)


def fits(value: object, schema: Schema) -> bool:
    """Whether a value is what a schema of these asks for."""
    if "anyOf" in schema:
        return any(fits(value, option) for option in schema["anyOf"])
    if "enum" in schema:
        return any(value == one and type(value) is type(one) for one in schema["enum"])
    if "const" in schema:
        return value == schema["const"]
    return _CHECKS[str(schema["type"])](value, schema)


def _integer(value: object, schema: Schema) -> bool:
    return type(value) is int and schema["minimum"] <= value <= schema["maximum"]


def _string(value: object, schema: Schema) -> bool:
    if not isinstance(value, str) or len(value) > schema.get("maxLength", 100):
        return False
    return "pattern" not in schema or re.search(schema["pattern"], value) is not None


def _object(value: object, schema: Schema) -> bool:
    if not isinstance(value, dict) or not set(schema["required"]) <= value.keys():
        return False
    known = schema["properties"]
    return all(name in known and fits(item, known[name]) for name, item in value.items())


def _array(value: object, schema: Schema) -> bool:
    if not isinstance(value, list):
        return False
    if not schema["minItems"] <= len(value) <= schema["maxItems"]:
        return False
    return all(fits(item, schema["items"]) for item in value)


_CHECKS = {
    "integer": _integer,
    "string": _string,
    "boolean": lambda value, schema: type(value) is bool,
    "null": lambda value, schema: value is None,
    "object": _object,
    "array": _array,
}
