"""Typed look-ups in a parsed config, with errors that name the key and the value.

A null counts as absent, as it does in Hugging Face configs. Knows no key by name.
"""

import contextlib
import math
from collections.abc import Mapping
from typing import TypeVar

from pegainfer_core.weights.errors import ConfigError

__all__ = ["bool_field", "float_field", "int_field", "object_field"]

_Number = TypeVar("_Number", int, float)


def int_field(
    config: Mapping[str, object],
    key: str,
    *,
    default: int | None = None,
    minimum: int = 1,
    maximum: int | None = None,
    where: str = "config.json",
) -> int:
    """An integer of at least `minimum`; without a `default` the key is required.

    Raises:
        ConfigError: The key is missing, not an integer, too small or too large.
    """
    value = config.get(key)
    if value is None:
        return _default(default, key, where)
    # A float such as 4096.0 is how some tools write integers.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ConfigError(f"{where}: {key} is {value!r}; expected an integer >= {minimum}")
    if maximum is not None and value > maximum:
        raise ConfigError(f"{where}: {key} is {value}; more than {maximum} is not supported")
    return value


def float_field(
    config: Mapping[str, object],
    key: str,
    *,
    default: float | None = None,
    minimum: float = 0.0,
    where: str = "config.json",
) -> float:
    """A finite number of at least `minimum`; without a `default` the key is required.

    Raises:
        ConfigError: The key is missing, not a finite number, or too small.
    """
    value = config.get(key)
    if value is None:
        return _default(default, key, where)
    number = float("nan")
    if isinstance(value, int | float) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):  # of an integer with hundreds of digits
            number = float(value)
    if not math.isfinite(number) or number < minimum:
        shown = repr(value)[:100]
        bound = "finite number" if minimum == -math.inf else f"number >= {minimum:g}"
        raise ConfigError(f"{where}: {key} is {shown}; expected a {bound}")
    return number


def bool_field(
    config: Mapping[str, object], key: str, *, default: bool, where: str = "config.json"
) -> bool:
    """True or false.

    Raises:
        ConfigError: The value is something else.
    """
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ConfigError(f"{where}: {key} is {value!r}; expected true or false")
    return value


def object_field(
    config: Mapping[str, object], key: str, *, where: str = "config.json"
) -> Mapping[str, object]:
    """A nested object; empty when absent.

    Raises:
        ConfigError: The value is not an object.
    """
    value = config.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: {key} is {value!r}; expected an object")
    return value


def _default(default: _Number | None, key: str, where: str) -> _Number:
    if default is None:
        raise ConfigError(f"{where}: {key} is missing; this model cannot be built without it")
    return default
