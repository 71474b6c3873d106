"""Routes that plugins add. They cannot take a path of the server's own, nor of each other."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from litestar.handlers import BaseRouteHandler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litestar.config.app import AppConfig

_RESERVED = frozenset({"/schema"})

logger = logging.getLogger(__name__)


def plugin_routes(
    config: AppConfig, offers: Sequence[tuple[str, Sequence[object]]]
) -> list[BaseRouteHandler]:
    """The handlers that can be added.

    Args:
        config: The application's, with its own handlers.
        offers: Plugin names and what they offer; a plugin with a fault is left out with a warning.
    """
    taken = set(_RESERVED)
    for own in config.route_handlers:
        if isinstance(own, BaseRouteHandler):
            taken |= own.paths
    accepted: list[BaseRouteHandler] = []
    for plugin, offered in offers:
        handlers = [handler for handler in offered if isinstance(handler, BaseRouteHandler)]
        paths = {path for handler in handlers for path in handler.paths}
        if len(handlers) != len(offered):
            logger.warning("plugin %s: server_routes offers things that are no handlers", plugin)
        elif clash := sorted(paths & taken):
            logger.warning(
                "plugin %s: its routes are left out, %s is taken already", plugin, ", ".join(clash)
            )
        else:
            taken |= paths
            accepted += handlers
    return accepted
