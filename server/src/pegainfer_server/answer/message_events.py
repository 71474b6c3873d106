"""Events of a streamed message of `/v1/messages`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from pegainfer_server.answer.chunks import TEXT_MARKER
from pegainfer_server.answer.message_blocks import SIGNATURE
from pegainfer_server.answer.parts import AnswerParts, Part, PartChange, PartKind, PartStep
from pegainfer_server.answer.sse import encode_json, named_event, split_once
from pegainfer_server.error_shapes import message_error
from pegainfer_server.protocol.messages_answer import (
    BlockDelta,
    ContentBlock,
    MessageEvent,
    TextOutput,
    ThinkingOutput,
    ToolUseOutput,
    message_usage,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_server.answer.message_blocks import MessageFrame
    from pegainfer_server.api_error import ApiError
    from pegainfer_server.generation import Generation, Piece
    from pegainfer_server.protocol.usage import Usage

_EMPTY: Final = msgspec.Raw(b"{}")


class MessageEvents:
    """Implements `ChunkEncoder`."""

    ping = named_event("ping", MessageEvent(type="ping"))

    def __init__(self, frame: MessageFrame) -> None:
        self._frame = frame
        self._parts = AnswerParts()
        self._started = False
        # The events of a growing block differ in their text only.
        self._around = (b"", b"")

    def opening(self) -> bytes:
        """Nothing: the first event tells what came from the cache, which is not known yet."""
        return b""

    def pieces(self, pieces: Sequence[Piece], generation: Generation) -> bytes:
        """Events for what the pieces add, and the last ones when the answer has ended."""
        body = b""
        if not self._started:
            self._started = True
            message = self._frame.message(generation, (), None)
            body = _event(MessageEvent(type="message_start", message=message))
        # Each step is shown before the next one is taken, while its part is still as short.
        body += b"".join(self._step(step) for piece in pieces for step in self._parts.take(piece))
        if generation.ending is None:
            return body
        body += b"".join(map(self._step, self._parts.end()))
        ending = MessageEvent(
            type="message_delta",
            delta=self._frame.ending(generation, self._parts.parts, generation.ending),
            usage=message_usage(generation.usage),
        )
        return body + _event(ending) + _event(MessageEvent(type="message_stop"))

    def usage(self, usage: Usage) -> bytes:
        """The event before the last one has it."""
        return b""

    def error(self, error: ApiError) -> bytes:
        """The error as any response has it."""
        return named_event("error", message_error(error))

    def closing(self) -> bytes:
        """The last event is known by its type."""
        return b""

    def _step(self, step: PartStep) -> bytes:
        part = step.part
        if step.change is PartChange.GREW:
            head, tail = self._around
            return head + encode_json(step.text) + tail
        if step.change is PartChange.OPENED:
            self._around = split_once(_delta(part, _grown(part.kind, TEXT_MARKER)), TEXT_MARKER)
            start = MessageEvent(
                type="content_block_start", index=part.index, content_block=_opened(part)
            )
            return _event(start)
        signature = b""
        if part.kind is PartKind.REASONING:
            signature = _delta(part, BlockDelta(type="signature_delta", signature=SIGNATURE))
        return signature + _event(MessageEvent(type="content_block_stop", index=part.index))


def _opened(part: Part) -> ContentBlock:
    if part.kind is PartKind.CALL:
        return ToolUseOutput(id=part.call_id, name=part.name, input=_EMPTY)
    if part.kind is PartKind.TEXT:
        return TextOutput(text="")
    return ThinkingOutput(thinking="", signature="")


def _grown(kind: PartKind, text: str) -> BlockDelta:
    if kind is PartKind.CALL:
        return BlockDelta(type="input_json_delta", partial_json=text)
    if kind is PartKind.TEXT:
        return BlockDelta(type="text_delta", text=text)
    return BlockDelta(type="thinking_delta", thinking=text)


def _delta(part: Part, delta: BlockDelta) -> bytes:
    return _event(MessageEvent(type="content_block_delta", index=part.index, delta=delta))


def _event(event: MessageEvent) -> bytes:
    return named_event(event.type, event)
