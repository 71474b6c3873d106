"""Messages between server and engine process: length-prefixed msgpack on a stream socket."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pegainfer_core.contract import (
    AdapterError,
    AdapterInfo,
    AdapterProblem,
    EngineError,
    EngineInfo,
    EngineMetrics,
    LaunchContext,
    ServePlan,
    StepFrame,
    Tokens,
)
from pegainfer_core.engine.command import (
    Abort,
    Close,
    LoadAdapter,
    ResetPrefixCache,
    Submit,
    UnloadAdapter,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pegainfer_core.contract import TokenEvent

_HEADER_BYTES = 4
_RECEIVE_BYTES = 256 * 1024
_MAX_SEPARATE_FRAMES = 64


class Launch(msgspec.Struct, frozen=True, tag="launch"):
    """First message to a worker: everything it needs to build its engine.

    `sys_path` lets the worker import what the parent can, however the parent was started.
    """

    context: LaunchContext
    plan: ServePlan
    sys_path: list[str]


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """The engine is built."""

    info: EngineInfo


class StartFailed(msgspec.Struct, frozen=True, array_like=True, tag="failed"):
    """The engine could not be built; `user_fault` when checkpoint or options are to blame."""

    message: str
    details: str
    user_fault: bool


class Report(msgspec.Struct, frozen=True, array_like=True, tag="report"):
    """A metrics snapshot."""

    metrics: EngineMetrics


class Fault(msgspec.Struct, frozen=True, array_like=True, tag="fault"):
    """Last words of an engine whose loop ended by an exception."""

    message: str


class AdaptersChanged(msgspec.Struct, frozen=True, array_like=True, tag="adapters"):
    """What came of a change of adapters.

    Attributes:
        ticket: Of the command.
        info: Of the adapter; None if it failed.
        problem: Why it failed; None if the engine did.
        message: In words.
        loaded: All adapters after it.
    """

    ticket: int
    info: AdapterInfo | None
    problem: AdapterProblem | None
    message: str
    loaded: list[AdapterInfo]

    @classmethod
    def failed(
        cls, ticket: int, error: BaseException, loaded: list[AdapterInfo]
    ) -> AdaptersChanged:
        """The answer that carries an error."""
        problem = error.problem if isinstance(error, AdapterError) else None
        return cls(ticket, None, problem, str(error), loaded)

    def error(self) -> Exception:
        """The error again, at the other end."""
        if self.problem is None:
            return EngineError(self.message)
        return AdapterError(self.problem, self.message)


ToWorker = Submit | Abort | ResetPrefixCache | LoadAdapter | UnloadAdapter | Close
FromWorker = StepFrame | Report | Ready | StartFailed | Fault | AdaptersChanged

T = TypeVar("T")


class Channel:
    """One end of the socket. Sending and receiving may happen on different threads."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._encoder = msgspec.msgpack.Encoder()

    def send(self, message: object) -> None:
        """Send one message whole; blocks while the peer's buffer is full.

        Raises:
            OSError: The peer is gone.
        """
        self._sock.sendall(self.encode(message))

    def encode(self, message: object) -> bytes:
        """One message as it travels."""
        body = self._encoder.encode(message)
        return len(body).to_bytes(_HEADER_BYTES, "little") + body

    def send_bytes(self, data: bytes) -> None:
        """Send encoded messages, or the rest of one; blocks likewise.

        Raises:
            OSError: The peer is gone.
        """
        self._sock.sendall(data)

    def send_at_once(self, data: bytes) -> int:
        """Send as much as the peer's buffer takes without waiting.

        Returns:
            Bytes sent.

        Raises:
            OSError: The peer is gone.
        """
        try:
            return self._sock.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def receive(self, decoder: msgspec.msgpack.Decoder[T]) -> Iterator[T]:
        """Yield messages until the peer closes its end."""
        buffer = bytearray()
        while True:
            try:
                chunk = self._sock.recv(_RECEIVE_BYTES)
            except OSError:
                return
            if not chunk:
                return
            buffer += chunk
            start = 0
            while len(buffer) - start >= _HEADER_BYTES:
                body = start + _HEADER_BYTES
                end = body + int.from_bytes(buffer[start:body], "little")
                if len(buffer) < end:
                    break
                yield decoder.decode(memoryview(buffer)[body:end])
                start = end
            del buffer[:start]

    def wait_readable(self) -> bool:
        """Block until a message comes; returns False when the peer closed its end instead."""
        try:
            return bool(self._sock.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def close(self) -> None:
        """Close both directions; a blocked receiver returns."""
        try:
            self._sock.shutdown(2)
        except OSError:
            pass
        self._sock.close()


def merge_frames(frames: list[StepFrame]) -> StepFrame:
    """One frame saying what several said, in order.

    A few frames that piled up keep their events apart, so that clients still see one per step. A
    long backlog joins each request's consecutive tokens: its reader is stuck, and memory matters.
    Order within a request is kept; order between requests has no meaning.
    """
    if len(frames) == 1:
        return frames[0]
    if len(frames) <= _MAX_SEPARATE_FRAMES:
        return StepFrame([event for frame in frames for event in frame.events])
    events: list[TokenEvent] = []
    last: dict[int, int] = {}
    for frame in frames:
        for event in frame.events:
            at = last.get(event.request_id)
            if at is not None and isinstance(event, Tokens):
                before = events[at]
                if isinstance(before, Tokens):
                    events[at] = _join(before, event)
                    continue
            last[event.request_id] = len(events)
            events.append(event)
    return StepFrame(events)


def _join(first: Tokens, second: Tokens) -> Tokens:
    logprobs = None
    if first.logprobs is not None and second.logprobs is not None:
        logprobs = first.logprobs + second.logprobs
    return Tokens(first.request_id, first.token_ids + second.token_ids, logprobs)
