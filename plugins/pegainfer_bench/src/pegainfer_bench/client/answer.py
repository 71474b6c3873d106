"""Reads the server-sent events of one answer into its outcome. Knows no socket and no clock.

An event counts when it holds a part of the answer: any with a choice, except the one that only
opens a chat message by naming its role.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from pegainfer_bench.client.outcome import Outcome

_ERROR_CHARS: Final = 300
_KEPT_BYTES: Final = 4096
"""Of a body that holds no events, for the text of an error."""


_NONE: Final = msgspec.Raw(b"null")


class _PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Completion(msgspec.Struct, gc=False):
    pass


class _Delta(msgspec.Struct, gc=False):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[msgspec.Raw] | None = None


class _Chat(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _CompletionChunk(msgspec.Struct, gc=False):
    choices: list[_Completion] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = _NONE


class _ChatChunk(msgspec.Struct, gc=False):
    choices: list[_Chat] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = _NONE


_Decode = Callable[[bytes], _CompletionChunk | _ChatChunk]
_DECODERS: Final[Mapping[bool, _Decode]] = {
    False: msgspec.json.Decoder(_CompletionChunk).decode,
    True: msgspec.json.Decoder(_ChatChunk).decode,
}
"""By whether events are chat chunks."""


class AnswerReader:
    """Takes an answer's bytes as they arrive.

    Args:
        outcome: To fill in.
        is_chat: Whether events are chat chunks.
    """

    def __init__(self, outcome: Outcome, *, is_chat: bool) -> None:
        self.outcome = outcome
        self._decode = _DECODERS[is_chat]
        self._is_chat = is_chat
        self._rest = b""
        self._other = b""
        self._done = False

    @property
    def other(self) -> bytes:
        """The beginning of what was no event, such as an error's JSON."""
        return self._other + self._rest

    def feed(self, data: bytes, now_s: float) -> None:
        """Take bytes of the stream that arrived at this time."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if line.startswith(b"data:"):
                if not self._done:
                    self._event(line[5:].strip(), now_s)
            elif line and len(self._other) < _KEPT_BYTES:
                self._other += line

    def finish(self) -> None:
        """The stream has ended: settle counts, and fail an answer without an event."""
        outcome = self.outcome
        if not outcome.has_usage:
            outcome.output_tokens = len(outcome.event_times_s)
        if outcome.ok and not outcome.event_times_s:
            outcome.error = "the answer held no event"

    def _event(self, payload: bytes, now_s: float) -> None:
        if payload == b"[DONE]":
            self._done = True
            return
        try:
            chunk = self._decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._fail(f"an event cannot be read ({error}): {_text(payload)}")
            return
        if chunk.error is not _NONE and bytes(chunk.error) != b"null":
            self._fail(error_text(bytes(chunk.error)))
            return
        if chunk.usage is not None:
            self._count(chunk.usage)
        if chunk.choices and not (self._is_chat and all(map(_opens_chat, chunk.choices))):
            self.outcome.event_times_s.append(now_s)

    def _fail(self, error: str) -> None:
        self.outcome.error = error
        self._done = True

    def _count(self, usage: _Usage) -> None:
        outcome = self.outcome
        if usage.completion_tokens is not None:
            outcome.output_tokens = usage.completion_tokens
            outcome.has_usage = True
        outcome.prompt_tokens = usage.prompt_tokens
        details = usage.prompt_tokens_details
        outcome.cached_tokens = (details.cached_tokens or 0) if details else 0


def _opens_chat(choice: _Chat | _Completion) -> bool:
    if isinstance(choice, _Completion) or choice.delta is None or choice.finish_reason:
        return False
    delta = choice.delta
    said = delta.content or delta.reasoning_content or delta.reasoning or delta.tool_calls
    return delta.role is not None and not said


class _ErrorDetail(msgspec.Struct, gc=False):
    message: str


class _ErrorBody(msgspec.Struct, gc=False):
    error: _ErrorDetail


def error_text(body: bytes) -> str:
    """The message in an error's JSON, or the beginning of whatever it is."""
    try:
        return _line(msgspec.json.decode(body, type=_ErrorBody).error.message)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return _line(msgspec.json.decode(body, type=_ErrorDetail).message)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    return _text(body)


def _text(body: bytes) -> str:
    return _line(body.decode("utf-8", "replace"))


def _line(text: str) -> str:
    return " ".join(text.split())[:_ERROR_CHARS]
