"""The hook API's version, its rule of compatibility, and the markers plugins use.

Knows no hook and no plugin.
"""

from __future__ import annotations

import re

import pluggy

PROJECT = "pegainfer"
ENTRY_POINT_GROUP = "pegainfer.plugins"

HOOK_API = (1, 0)
"""Version of the hooks and of `ModelFamily`; a plugin states the one it was written for."""

API_ATTRIBUTE = "__pegainfer_api__"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a plugin's implementation of a hook."""

_VERSION = re.compile(r"(\d+)\.(\d+)")


class IncompatibleApi(Exception):
    """A plugin was written for a hook API this host does not speak; the message says what to do."""


def declared_api(plugin: object) -> str | None:
    """The `__pegainfer_api__` of a plugin module or object, None when it has none."""
    declared = getattr(plugin, API_ATTRIBUTE, None)
    return None if declared is None else str(declared)


def check_api(plugin: object, dist: str) -> str:
    """Return the API version a plugin declares if this host can serve it.

    Same major and a minor not above the host's: a newer minor may use hooks that do not exist here.

    Raises:
        IncompatibleApi: It declares no version, or one this host cannot serve.
    """
    host = f"{HOOK_API[0]}.{HOOK_API[1]}"
    declared = declared_api(plugin)
    if declared is None:
        raise IncompatibleApi(
            f'it declares no {API_ATTRIBUTE}; its author adds {API_ATTRIBUTE} = "{host}"'
        )
    match = _VERSION.fullmatch(declared)
    if match is None:
        raise IncompatibleApi(f"{API_ATTRIBUTE} is {declared!r}; expected a version such as {host}")
    major, minor = int(match[1]), int(match[2])
    if (major, minor) > HOOK_API:
        raise IncompatibleApi(
            f"it needs hook API {declared}, this pegainfer has {host}; "
            "upgrade the host: pip install --upgrade pegainfer"
        )
    if major != HOOK_API[0]:
        raise IncompatibleApi(
            f"it was written for hook API {declared}, this pegainfer has {host}; "
            f"upgrade the plugin: pip install --upgrade {dist}"
        )
    return declared
