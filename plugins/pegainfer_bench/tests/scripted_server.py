"""A server that answers as a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable
from typing import Any

Step = bytes | float
"""Bytes to write, or seconds to wait; an empty write closes the connection."""


def event(**fields: object) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def token(text: str = "x") -> bytes:
    return event(choices=[{"index": 0, "text": text, "finish_reason": None}])


def usage(prompt: int, output: int, cached: int | None = None) -> bytes:
    counts: dict[str, object] = {"prompt_tokens": prompt, "completion_tokens": output}
    if cached is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": cached}
    return event(choices=[], usage=counts)


DONE = b"data: [DONE]\n\n"


def chunked(parts: Iterable[Step]) -> list[Step]:
    """A whole 200 answer in the chunked transfer coding."""
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    steps: list[Step] = [head]
    for part in parts:
        steps.append(b"%x\r\n%s\r\n" % (len(part), part) if isinstance(part, bytes) else part)
    return [*steps, b"0\r\n\r\n"]


def whole(body: bytes, status: str = "200 OK") -> list[Step]:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n"
    return [head.encode() + body]


def full_answer(body: dict[str, Any]) -> list[Step]:
    """As many tokens as asked for."""
    count = body["max_tokens"]
    prompt = body.get("prompt") or "chat"
    return chunked([*[token()] * count, usage(len(prompt), count), DONE])


class ScriptedServer:
    """Runs on a thread of its own.

    Attributes:
        url: Where it listens.
        bodies: Of the requests, as JSON, in the order of their arrival.
        heads: Likewise, as bytes.
        answer: From a body to what is written.
        models: Answer to `/v1/models`.
    """

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.heads: list[bytes] = []
        self.answer: Callable[[dict[str, Any]], list[Step]] = full_answer
        self.models: list[Step] = whole(b'{"object": "list", "data": [{"id": "m"}, {"id": "n"}]}')
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._ready.wait(10)
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        self._loop.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET /v1/models"):
            return await self._write(writer, self.models)
        lengths = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-len")]
        body = json.loads(await reader.readexactly(int(lengths[0].split(b":")[1])))
        self.heads.append(head)
        self.bodies.append(body)
        return await self._write(writer, self.answer(body))

    async def _write(self, writer: asyncio.StreamWriter, steps: list[Step]) -> bool:
        for step in steps:
            if isinstance(step, float):
                await asyncio.sleep(step)
            elif step:
                writer.write(step)
                await writer.drain()
            else:
                return False
        return True
