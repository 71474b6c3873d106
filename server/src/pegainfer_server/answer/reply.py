"""ASGI responses: bytes known beforehand, and an answer streamed.

Streams do not go through the web framework's generators, whose price is paid for every token.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from pegainfer_server.answer.event_writer import EventWriter
from pegainfer_server.answer.sse import HEADERS
from pegainfer_server.api_error import ApiError, internal
from pegainfer_server.fault_id import log_fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litestar.types import Receive, Scope, Send

    from pegainfer_server.answer.chunks import ChunkEncoder
    from pegainfer_server.answer.stream_keeper import StreamKeeper
    from pegainfer_server.generation import Generation
    from pegainfer_server.protocol.usage import Usage

JSON = b"application/json"


class Reply(ABC):
    """What a route handler returns."""

    @abstractmethod
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""


class BytesReply(Reply):
    """A body that is known beforehand."""

    def __init__(
        self,
        body: bytes,
        *,
        status: int = 200,
        content_type: bytes = JSON,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        self._body = body
        self._status = status
        self._headers = [
            (b"content-type", content_type),
            (b"content-length", str(len(body)).encode()),
            *headers,
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send status, headers and body."""
        await send(
            {"type": "http.response.start", "status": self._status, "headers": self._headers}
        )
        await send({"type": "http.response.body", "body": self._body, "more_body": False})


@contextlib.contextmanager
def watched(receive: Receive, *generations: Generation) -> Iterator[None]:
    """Abort generations when their client goes away, and account for them at the end.

    Servers cancel no handler of a client that left, so somebody has to wait for the news.
    """

    async def wait_for_disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        for generation in generations:
            if generation.ending is None:
                generation.abandon()

    watcher = asyncio.ensure_future(wait_for_disconnect())
    try:
        yield
    finally:
        watcher.cancel()
        for generation in generations:
            generation.close()


class StreamReply(Reply):
    """An answer as server-sent events.

    Headers wait for the engine's first word, so that a refusal can still have its own status.
    """

    def __init__(self, generation: Generation, chunks: ChunkEncoder, keeper: StreamKeeper) -> None:
        self._generation = generation
        self._chunks = chunks
        self._keeper = keeper

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream the answer.

        Raises:
            ApiError: The engine refused the request before anything was sent.
        """
        generations = self.generations
        with watched(receive, *generations):
            body = self.opening()
            try:
                async with asyncio.timeout(self._keeper.ping_interval_s):
                    body += await self.next_events()
            except TimeoutError:
                pass  # A long queue: from here on the client gets pings.
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            streams = [generation.stream for generation in generations]
            request_id = self._generation.job.request_id
            writer = EventWriter(send, streams, self._chunks.ping, request_id)
            with self._keeper.keeping(writer), writer.cut_off_quietly():
                await self._write(body, writer)

    @property
    def generations(self) -> Sequence[Generation]:
        """What makes the answer."""
        return (self._generation,)

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        return self._generation.usage

    @property
    def ended(self) -> bool:
        """Whether no events follow but those at the end of every stream."""
        return self._generation.ending is not None

    def opening(self) -> bytes:
        """Events before any text."""
        return self._chunks.opening()

    async def next_events(self) -> bytes:
        """Wait for the engine; not to be called when all has ended.

        Raises:
            ApiError: The engine refused or lost the request.
        """
        return self._chunks.pieces(await self._generation.next_pieces(), self._generation)

    async def _write(self, body: bytes, writer: EventWriter) -> None:
        chunks = self._chunks
        try:
            while not self.ended:
                if body:
                    await writer.write(body)
                body = await self.next_events()
            if self._generation.job.include_usage:
                body += chunks.usage(self.usage)
        except ApiError as error:
            body = chunks.error(error)
        except Exception as error:
            body = chunks.error(internal(log_fault(error, self._generation.job.request_id)))
        await writer.write(body + chunks.closing(), more_body=False)
