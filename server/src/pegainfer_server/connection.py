"""Connections of the web server: small buffers, and a count of those whose clients took nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

    from uvicorn.config import Config
    from uvicorn.server import ServerState as WebState

    from pegainfer_server.metrics import RequestMetrics

#: Enough to keep the kernel's buffer full; more piles up only where nobody reads.
_WRITE_BUFFER_BYTES = 16 << 10

logger = logging.getLogger(__name__)


class Connection(HttpToolsProtocol):
    """uvicorn's connection; the kernel ends a stalled one, which looks like any other end."""

    def __init__(
        self,
        metrics: RequestMetrics,
        *,
        config: Config,
        server_state: WebState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._metrics = metrics

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a new connection."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count, and let uvicorn tell the application."""
        if isinstance(exc, TimeoutError):
            self._metrics.num_stalled += 1
            logger.warning("%s took nothing of its answer; the connection broke", self.client)
        super().connection_lost(exc)
