"""An answer as the message of `/v1/messages`: blocks, and why it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET

from pegainfer_server.answer.parts import Part, PartKind, parts_of
from pegainfer_server.answer.sse import encode_json
from pegainfer_server.protocol.messages_answer import (
    AnsweredMessage,
    ContentBlock,
    MessageDelta,
    TextOutput,
    ThinkingOutput,
    ToolUseOutput,
    message_usage,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.text import Tokenizer
    from pegainfer_server.answer.several import Choice
    from pegainfer_server.generation import Ending, Generation

SIGNATURE: Final = "unsigned"
"""Clients drop thinking that has no signature at all."""


class MessageFrame:
    """Makes what surrounds one answer."""

    def __init__(self, max_tokens: int) -> None:
        """Prepare; `max_tokens` is the client's, perhaps more than the context had room for."""
        self._max_tokens = max_tokens

    def message(
        self, generation: Generation, parts: Sequence[Part], ending: MessageDelta | None
    ) -> AnsweredMessage:
        """The message as far as it is known; its usage is that of the prompt at first."""
        job = generation.job
        usage = message_usage(generation.usage)
        if ending is None:
            usage = msgspec.structs.replace(usage, output_tokens=0, output_tokens_details=UNSET)
        return AnsweredMessage(
            id=f"msg_{job.request_id}",
            model=job.model,
            content=[block_of(part) for part in parts],
            stop_reason=None if ending is None else ending.stop_reason,
            stop_sequence=None if ending is None else ending.stop_sequence,
            usage=usage,
        )

    def ending(self, generation: Generation, parts: Sequence[Part], ending: Ending) -> MessageDelta:
        """Why the answer ended; one that calls a tool has not just stopped."""
        called = any(part.kind is PartKind.CALL for part in parts)
        if called and ending.finish_reason == "stop":
            return MessageDelta(stop_reason="tool_use", stop_sequence=None)
        if ending.finish_reason == "length":
            filled = generation.usage.completion_tokens < self._max_tokens
            reason = "model_context_window_exceeded" if filled else "max_tokens"
            return MessageDelta(stop_reason=reason, stop_sequence=None)
        if isinstance(ending.stop_reason, str):
            return MessageDelta(stop_reason="stop_sequence", stop_sequence=ending.stop_reason)
        return MessageDelta(stop_reason="end_turn", stop_sequence=None)


class WholeMessage:
    """Implements `ChoicesEncoder`."""

    def __init__(self, frame: MessageFrame) -> None:
        self._frame = frame

    def __call__(self, choices: Sequence[Choice], tokenizer: Tokenizer) -> bytes:
        """The one answer as JSON."""
        ((generation, pieces, ending),) = choices
        parts = parts_of(pieces)
        ended = self._frame.ending(generation, parts, ending)
        return encode_json(self._frame.message(generation, parts, ended))


def block_of(part: Part) -> ContentBlock:
    """A part as a block."""
    if part.kind is PartKind.CALL:
        # As the model wrote it: a parser lets nothing pass but the JSON text of an object.
        arguments = msgspec.Raw((part.text or "{}").encode())
        return ToolUseOutput(id=part.call_id, name=part.name, input=arguments)
    if part.kind is PartKind.TEXT:
        return TextOutput(text=part.text)
    return ThinkingOutput(thinking=part.text, signature=SIGNATURE)
