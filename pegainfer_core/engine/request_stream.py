"""What a reader sees of one request. Knows nothing of frames or transports."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pegainfer_core.contract import TERMINAL_EVENTS, Tokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pegainfer_core.contract import TokenEvent
    from pegainfer_core.engine.client import EngineClient

MAX_UNREAD_TOKENS = 4096
MAX_UNREAD_BYTES = 1 << 20
_TOKEN_BYTES = 64
_TOP_LOGPROB_BYTES = 40


class RequestStream:
    """The events of one request, in order, ending in exactly one terminal.

    Attributes:
        request_id: The id the engine knows the request by.
        writing: Set by whoever forwards the events, while it waits for its reader. Only then does
            the limit on unread events count: a fast engine is no reason to drop a client.
        overflowed: Whether the request was aborted because its reader did not read.
    """

    def __init__(self, request_id: int, client: EngineClient) -> None:
        self.request_id = request_id
        self.writing = False
        self.overflowed = False
        self._client = client
        self._events: list[TokenEvent] = []
        self._waiter: asyncio.Future[None] | None = None
        self._unread_tokens = 0
        self._unread_bytes = 0

    async def next_events(self) -> list[TokenEvent]:
        """Wait for at least one event and return all that have arrived.

        Not to be called again once the terminal event was returned.
        """
        if not self._events:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        events, self._events = self._events, []
        self._unread_tokens = self._unread_bytes = 0
        return events

    async def __aiter__(self) -> AsyncIterator[TokenEvent]:
        """Iterate over single events, the terminal last."""
        while True:
            for event in await self.next_events():
                yield event
                if isinstance(event, TERMINAL_EVENTS):
                    return

    def abort(self) -> None:
        """Ask to end the request; its terminal still arrives. Harmless once it has."""
        self._client.abort(self.request_id)

    def push(self, event: TokenEvent) -> None:
        """Append an event; for the client alone, on its event loop."""
        self._events.append(event)
        if self.writing and isinstance(event, Tokens):
            self._count_unread(event)
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def _count_unread(self, event: Tokens) -> None:
        self._unread_tokens += len(event.token_ids)
        self._unread_bytes += _TOKEN_BYTES * len(event.token_ids)
        for entry in event.logprobs or ():
            self._unread_bytes += _TOP_LOGPROB_BYTES * (1 + len(entry.top_token_ids))
        too_many = self._unread_tokens > MAX_UNREAD_TOKENS
        if (too_many or self._unread_bytes > MAX_UNREAD_BYTES) and not self.overflowed:
            self.overflowed = True
            self._client.num_slow_readers += 1
            self.abort()
