"""How the user steers plugin loading from the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

PLUGINS_VARIABLE = "PEGAINFER_PLUGINS"
STRICT_VARIABLE = "PEGAINFER_STRICT_PLUGINS"
TRACE_VARIABLE = "PEGAINFER_TRACE_PLUGINS"

_OFF = frozenset({"", "0", "false", "no", "off"})


class HostSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What may be loaded, and how loud the host is.

    Attributes:
        allowed: Names of the plugins to load; None loads all, empty loads none.
        strict: Any plugin problem stops the program.
        trace: Print every hook call and its result to stderr.
    """

    allowed: frozenset[str] | None = None
    strict: bool = False
    trace: bool = False

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> HostSettings:
        """Read the three variables; unset ones leave the defaults."""
        values = os.environ if environ is None else environ
        names = values.get(PLUGINS_VARIABLE)
        return cls(
            allowed=None if names is None else _names(names),
            strict=_is_on(values.get(STRICT_VARIABLE, "")),
            trace=_is_on(values.get(TRACE_VARIABLE, "")),
        )


def _names(text: str) -> frozenset[str]:
    return frozenset(name for part in text.split(",") if (name := part.strip()))


def _is_on(text: str) -> bool:
    return text.strip().lower() not in _OFF
