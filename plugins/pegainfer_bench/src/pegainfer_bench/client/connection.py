"""A kept-alive HTTP/1.1 connection for streamed answers, as cheap a read as asyncio gives.

Bytes go from the socket's callback straight to the reader of the answer: no task is woken and no
line object made for an event, so that one process can follow hundreds of fast streams.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import httptools

if TYPE_CHECKING:
    from pegainfer_bench.client.target import Target

Clock = Callable[[], float]
Sink = Callable[[bytes, float], None]
"""Takes bytes of a body and the time they arrived."""


class ConnectionLost(Exception):
    """The server closed the connection, or spoke no HTTP.

    Attributes:
        untouched: Whether not a byte of an answer had arrived.
    """

    def __init__(self, message: str, *, untouched: bool) -> None:
        super().__init__(message)
        self.untouched = untouched


class Connection(asyncio.Protocol):
    """One connection; one request at a time.

    Attributes:
        usable: Whether another request can be sent.
        num_requests: Sent so far.
    """

    def __init__(self, clock: Clock) -> None:
        self.usable = True
        self.num_requests = 0
        self._clock = clock
        self._now_s = 0.0
        self._touched = False
        self._done: asyncio.Future[int] | None = None
        self._sink: Sink | None = None

    @classmethod
    async def open(cls, target: Target, clock: Clock = time.perf_counter) -> Connection:
        """Connect.

        Raises:
            OSError: The server cannot be reached.
        """
        loop = asyncio.get_running_loop()
        context = ssl.create_default_context() if target.tls else None
        _, connection = await loop.create_connection(
            lambda: cls(clock), target.host, target.port, ssl=context
        )
        return connection

    async def exchange(self, request: bytes, sink: Sink) -> int:
        """Send a request, give the body to `sink` as it arrives, return the status at its end.

        Raises:
            ConnectionLost: The answer did not come to its end.
        """
        self._done = asyncio.get_running_loop().create_future()
        self._sink = sink
        self._touched = False
        self._parser = httptools.HttpResponseParser(self)
        self.num_requests += 1
        self._transport.write(request)
        try:
            return await self._done
        except asyncio.CancelledError:
            self.close()
            raise

    def close(self) -> None:
        """Close at once."""
        self.usable = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._now_s = self._clock()
        self._touched = True
        if self._done is None:
            self.close()  # Nothing was asked for.
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"the server's answer is no HTTP: {error}")

    def eof_received(self) -> None:
        """See `asyncio.Protocol`; the transport then closes itself."""

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._fail(
            f"the server closed the connection before the end{f': {error}' if error else ''}"
        )

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        if self._sink is not None:
            self._sink(body, self._now_s)

    def on_message_complete(self) -> None:
        """See httptools."""
        status = self._parser.get_status_code()
        if not self._parser.should_keep_alive():
            self.usable = False
            self._transport.close()
        done, self._done, self._sink = self._done, None, None
        if done is not None and not done.done():
            done.set_result(status)

    def _fail(self, message: str) -> None:
        self.usable = False
        done, self._done = self._done, None
        if done is not None and not done.done():
            done.set_exception(ConnectionLost(message, untouched=not self._touched))
        self._transport.abort()
