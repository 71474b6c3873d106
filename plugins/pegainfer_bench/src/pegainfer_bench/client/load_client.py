"""Sends a dataset's requests to a completions or chat endpoint and follows the streams."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from pegainfer_bench.client.answer import AnswerReader, error_text
from pegainfer_bench.client.connection import Connection, ConnectionLost
from pegainfer_bench.client.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pegainfer_bench.client.connection import Clock, Sink
    from pegainfer_bench.client.target import Target
    from pegainfer_bench.dataset import BenchRequest


class LoadClient:
    """A client with as many connections as requests are under way.

    Args:
        target: The server.
        endpoint: Path to post to.
        is_chat: Whether prompts go as messages.
        fields: Of every request, beside prompt and length.
        timeout_s: Until a request has failed.
        clock: Gives the times.
    """

    def __init__(
        self,
        target: Target,
        endpoint: str,
        *,
        is_chat: bool,
        fields: Mapping[str, object],
        timeout_s: float,
        clock: Clock = time.perf_counter,
    ) -> None:
        self._target = target
        self._endpoint = endpoint
        self._is_chat = is_chat
        self._fields = {**fields, "stream": True, "stream_options": {"include_usage": True}}
        self._timeout_s = timeout_s
        self._clock = clock
        self._idle: list[Connection] = []

    def encode(self, request: BenchRequest) -> bytes:
        """The whole HTTP request; made before the run, so that sending costs nothing."""
        body: dict[str, object] = {**self._fields, "max_tokens": request.output_tokens}
        if self._is_chat:
            body["messages"] = [{"role": "user", "content": request.prompt}]
        else:
            body["prompt"] = request.prompt
        return self._target.request("POST", self._endpoint, msgspec.json.encode(body))

    async def send(self, encoded: bytes, asked_tokens: int) -> Outcome:
        """Send an encoded request and follow its answer; failures are in the outcome."""
        outcome = Outcome(asked_tokens=asked_tokens, sent_s=self._clock())
        reader = AnswerReader(outcome, is_chat=self._is_chat)
        try:
            async with asyncio.timeout(self._timeout_s):
                status = await self._exchange(encoded, reader.feed)
        except TimeoutError:
            outcome.error = f"no whole answer within {self._timeout_s:g} s"
        except (ConnectionLost, OSError) as error:
            outcome.error = str(error) or type(error).__name__
        else:
            if status != 200:
                outcome.error = f"HTTP {status}: {error_text(reader.other)}"
        reader.finish()
        return outcome

    def close(self) -> None:
        """Close the connections."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _exchange(self, encoded: bytes, sink: Sink) -> int:
        connection = await self._connection()
        reused = connection.num_requests > 0
        try:
            status = await connection.exchange(encoded, sink)
        except ConnectionLost as error:
            if not (reused and error.untouched):
                raise
            # The server gave the idle connection up just when the request was sent.
            connection = await Connection.open(self._target, self._clock)
            status = await connection.exchange(encoded, sink)
        if connection.usable:
            self._idle.append(connection)
        return status

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return await Connection.open(self._target, self._clock)
