"""Every schema inside of a schema. Knows which keywords hold schemas, and nothing else of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Schema", "rewritten", "subschemas"]

Schema = dict[str, object]

_DATA: Final = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are no schemas."""
_NAMED: Final = frozenset(
    {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
)
"""Keywords whose values are schemas by name."""


def rewritten(schema: object, change: Callable[[Schema], Schema]) -> object:
    """A copy of a schema in which each schema is what `change` makes of it, inner ones first.

    Args:
        schema: As read from JSON, no deeper than `schema_size` allows.
        change: Makes a schema of a schema, which it must not alter.
    """
    if isinstance(schema, list):
        return [rewritten(each, change) for each in schema]
    if not isinstance(schema, dict):
        return schema
    copy: Schema = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            copy[key] = {name: rewritten(each, change) for name, each in value.items()}
        else:
            copy[key] = value if key in _DATA else rewritten(value, change)
    return change(copy)


def subschemas(schema: object) -> Iterator[Schema]:
    """A schema and all those in it."""
    left = [schema]
    while left:
        inner = left.pop()
        if isinstance(inner, list):
            left += inner
        elif isinstance(inner, dict):
            yield inner
            for key, value in inner.items():
                if key in _NAMED and isinstance(value, dict):
                    left += value.values()
                elif key not in _DATA:
                    left.append(value)
