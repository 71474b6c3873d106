"""The sending end of one event stream: pings when it is silent, gives up on a clogged client."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litestar.types import Send

    from pegainfer_core.engine import RequestStream

logger = logging.getLogger(__name__)


class EventWriter:
    """Writes the body of a started response; belongs to the task that made it."""

    def __init__(
        self, send: Send, streams: Sequence[RequestStream], ping: bytes, request_id: str
    ) -> None:
        self._send = send
        self._request_id = request_id
        self._streams = streams
        self._task = asyncio.current_task()
        self._idle_ticks = 0
        self._ping_body = ping
        self._ping: asyncio.Task[None] | None = None

    async def write(self, body: bytes, *, more_body: bool = True) -> None:
        """Send bytes; waits while the client's receive window is full."""
        if self._ping is not None:
            await self._ping
            self._ping = None
        self._idle_ticks = 0
        for stream in self._streams:
            stream.writing = True
        await self._send({"type": "http.response.body", "body": body, "more_body": more_body})
        for stream in self._streams:
            stream.writing = False

    def tick(self, ticks_per_ping: int) -> None:
        """Called in regular intervals from outside the task."""
        if self._overflowed is not None and self._task is not None:
            self._task.cancel()
            return
        self._idle_ticks += 1
        if self._idle_ticks >= ticks_per_ping and not self._streams[0].writing:
            self._idle_ticks = 0
            self._ping = asyncio.ensure_future(self._send_ping())

    @contextlib.contextmanager
    def cut_off_quietly(self) -> Iterator[None]:
        """Swallow the cancellation that cuts off a client which does not read."""
        try:
            yield
        except asyncio.CancelledError:
            if self._overflowed is None:
                raise
            fields = {"request_id": self._request_id}
            message = "the client does not read; cut off id=%s"
            logger.warning(message, self._request_id, extra={"fields": fields})

    @property
    def _overflowed(self) -> RequestStream | None:
        """One whose client has not read for too long."""
        return next((stream for stream in self._streams if stream.overflowed), None)

    async def _send_ping(self) -> None:
        await self._send({"type": "http.response.body", "body": self._ping_body, "more_body": True})
