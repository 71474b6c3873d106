"""JSON inside of what a model wrote. Knows no format of calls."""

import json
import re
from math import isfinite
from typing import Final, NoReturn

__all__ = ["ends_in_string", "parse_json", "parse_object"]

_STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def parse_json(text: str) -> object:
    """The value of a JSON text.

    Raises:
        ValueError: It is none, or could not be written as JSON again: `NaN` and its like, numbers
            out of range, half of a surrogate pair.
    """
    try:
        value: object = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value


def parse_object(text: str) -> dict[str, object] | None:
    """The value of an object's JSON text, None for any other text."""
    try:
        value = parse_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def ends_in_string(text: str) -> bool:
    """Whether the beginning of a JSON text ends inside a string."""
    place = text.find('"')
    while place >= 0:
        string = _STRING.match(text, place)
        if string is None:
            return True
        place = text.find('"', string.end())
    return False


def _finite(number: str) -> float:
    value = float(number)
    return value if isfinite(value) else _refuse(number)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
