"""How large a JSON schema may be. What it means is llguidance's to say."""

from __future__ import annotations

from typing import Final

__all__ = ["schema_problem"]

MAX_PROPERTIES: Final = 2000
"""Of all objects together: reading them takes time in the square of their number."""
MAX_VALUES: Final = 40_000
MAX_DEPTH: Final = 100
"""llguidance's JSON reader ends at 128."""


def schema_problem(schema: object) -> str | None:
    """Why a schema is too large, as a clause; None if it is not.

    Args:
        schema: As read from JSON.
    """
    if not isinstance(schema, (dict, bool)):
        return "must be a JSON object or a boolean"
    num_values = num_properties = depth = 0
    level: list[object] = [schema]
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            return f"is nested deeper than {MAX_DEPTH} levels"
        num_values += len(level)
        if num_values > MAX_VALUES:
            return f"holds more than {MAX_VALUES} values"
        below: list[object] = []
        for value in level:
            if isinstance(value, dict):
                properties = value.get("properties")
                num_properties += len(properties) if isinstance(properties, dict) else 0
                below += value.values()
            elif isinstance(value, list):
                below += value
        if num_properties > MAX_PROPERTIES:
            return f"declares more than {MAX_PROPERTIES} properties"
        level = below
    return None
