"""Patterns that JavaScript has and llguidance has not, taken out of schemas that are not strict."""

from __future__ import annotations

import re
from typing import Final

from pegainfer_core.grammar.schema_walk import Schema, rewritten

__all__ = ["without_foreign_patterns"]

_FOREIGN: Final = re.compile(r"\\.|\(\?<?[=!]", re.DOTALL)


def without_foreign_patterns(schema: object) -> object:
    """A schema without patterns that look around or refer back, which would fail all of it."""
    return rewritten(schema, _without_pattern)


def _without_pattern(schema: Schema) -> Schema:
    pattern = schema.get("pattern")
    if not isinstance(pattern, str) or not _is_foreign(pattern):
        return schema
    return {key: value for key, value in schema.items() if key != "pattern"}


def _is_foreign(pattern: str) -> bool:
    found = (match[0] for match in _FOREIGN.finditer(pattern))
    return any(text[0] == "(" or text[1] in "0123456789kcbB" for text in found)
