"""The OpenAI-compatible server of pegainfer. Light to import: names load their modules on use."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegainfer_server.app import create_app
    from pegainfer_server.serve_command import serve
    from pegainfer_server.settings import ServerSettings
    from pegainfer_server.state import ServerState

__all__ = ["ServerSettings", "ServerState", "create_app", "serve"]

_HOMES = {
    "ServerSettings": "settings",
    "ServerState": "state",
    "create_app": "app",
    "serve": "serve_command",
}


def __getattr__(name: str) -> object:
    """Import a public name's module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
