"""`oneOf` whose branches a tag tells apart, as the `anyOf` that it then is.

llguidance tells branches apart where they stand in place, but does not follow their references,
which is how classes with a discriminator are written.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from pegainfer_core.grammar.schema_walk import Schema, rewritten

__all__ = ["with_any_of_tags"]

_MAX_HOPS: Final = 8


def with_any_of_tags(schema: object) -> object:
    """A schema in which `oneOf` of objects that differ in the values of a property is `anyOf`."""
    if not isinstance(schema, dict):
        return schema
    return rewritten(schema, lambda inner: _untagged(inner, schema))


def _untagged(schema: Schema, root: Schema) -> Schema:
    branches = schema.get("oneOf")
    if not isinstance(branches, list) or not branches or "anyOf" in schema:
        return schema
    targets = [_resolved(branch, root) for branch in branches]
    if any(target.get("type") != "object" for target in targets):
        return schema
    named = schema.get("discriminator")
    declared = named.get("propertyName") if isinstance(named, dict) else None
    for tag in _properties(targets[0]):
        if not _differ(targets, tag, root):
            continue
        if tag == declared:  # Whoever reads such an answer needs the tag, required or not.
            branches = [_requiring(branch, tag) for branch in branches]
        elif not all(tag in _required(target) for target in targets):
            continue
        others = {key: value for key, value in schema.items() if key != "oneOf"}
        return {**others, "anyOf": branches}
    return schema


def _differ(targets: list[Schema], tag: str, root: Schema) -> bool:
    """Whether no value of a property is allowed by two branches."""
    values = [_values(_resolved(_properties(target).get(tag), root)) for target in targets]
    each = list(chain.from_iterable(values))
    return all(values) and len(set(each)) == len(each)


def _values(schema: Schema) -> set[str]:
    """The only texts a schema allows; none if it allows others."""
    named = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(named, list) or not all(isinstance(value, str) for value in named):
        return set()
    return set(named)


def _resolved(schema: object, root: Schema) -> Schema:
    """What a schema refers to within the root, if it is nothing but a reference."""
    for _ in range(_MAX_HOPS):
        if not isinstance(schema, dict):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        place: object = root if reference.startswith("#/") else None
        for key in reference.split("/")[1:]:
            name = key.replace("~1", "/").replace("~0", "~")
            place = place.get(name) if isinstance(place, dict) else None
        schema = place
    return {}


def _properties(schema: Schema) -> Schema:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _required(schema: Schema) -> list[object]:
    required = schema.get("required")
    return required if isinstance(required, list) else []


def _requiring(branch: object, tag: str) -> object:
    if not isinstance(branch, dict) or tag in _required(branch):
        return branch
    return {**branch, "required": [*_required(branch), tag]}
