"""Patterns that JavaScript has and llguidance has not, taken out of schemas that are not strict."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["without_foreign_patterns"]

_FOREIGN: Final = re.compile(r"\\.|\(\?<?[=!]", re.DOTALL)
_DATA: Final = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are no schemas."""
_NAMED: Final = frozenset({"$defs", "definitions", "dependentSchemas", "properties"})
"""Keywords whose values are schemas by name."""


def without_foreign_patterns(schema: object) -> object:
    """A schema without patterns that look around or refer back, which would fail all of it.

    Args:
        schema: As read from JSON, no deeper than `schema_size` allows.
    """
    if isinstance(schema, list):
        return [without_foreign_patterns(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, object] = {}
    for key, value in schema.items():
        if key == "pattern" and isinstance(value, str) and _is_foreign(value):
            continue
        if key in _NAMED and isinstance(value, dict):
            value = {name: without_foreign_patterns(each) for name, each in value.items()}
        elif key not in _DATA:
            value = without_foreign_patterns(value)
        kept[key] = value
    return kept


def _is_foreign(pattern: str) -> bool:
    found = (match[0] for match in _FOREIGN.finditer(pattern))
    return any(text[0] == "(" or text[1] in "0123456789kcbB" for text in found)
