"""Objects without other properties than those they declare.

By the letter of JSON schemas, an object may hold anything beside what it declares. Models that have
not read the schema then make up properties until their limit; so objects are closed unless they
say otherwise. What is written so is valid by the letter, too.
"""

from __future__ import annotations

from typing import Final

from pegainfer_core.grammar.schema_walk import Schema, rewritten, subschemas

__all__ = ["with_closed_objects"]

_OWN: Final = ("properties", "required", "additionalProperties", "patternProperties")
_JOINED: Final = ("$ref", "allOf", "anyOf", "oneOf")
_CONDITIONS: Final = ("if", "dependentSchemas")
_SAYS_MORE: Final = ("additionalProperties", "patternProperties", "unevaluatedProperties")


def with_closed_objects(schema: object) -> object:
    """A schema whose objects are closed where they declare properties and say nothing of others.

    Nothing is closed where schemas are joined into one: no part knows the properties of the others.
    """
    if any(_joins(inner) for inner in subschemas(schema)):
        return schema
    return rewritten(schema, _closed)


def _joins(schema: Schema) -> bool:
    parts = schema.get("allOf")
    if isinstance(parts, list) and len(parts) > 1:
        return True
    num_kinds = sum(key in schema for key in _JOINED) + any(key in schema for key in _OWN)
    return num_kinds > 1 or any(key in schema for key in _CONDITIONS)


def _closed(schema: Schema) -> Schema:
    properties = schema.get("properties")
    if not isinstance(properties, dict) or any(key in schema for key in _SAYS_MORE):
        return schema
    required, least = schema.get("required"), schema.get("minProperties")
    if isinstance(required, list) and any(name not in properties for name in required):
        return schema
    if isinstance(least, int) and least > len(properties):
        return schema
    return {**schema, "additionalProperties": False}
