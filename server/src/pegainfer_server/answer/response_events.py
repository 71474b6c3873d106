"""Events of a streamed response of `/v1/responses`, numbered, in the order clients expect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from pegainfer_server.answer.chunks import TEXT_MARKER
from pegainfer_server.answer.parts import AnswerParts, Part, PartChange, PartKind, PartStep
from pegainfer_server.answer.response_frame import ResponseFrame
from pegainfer_server.answer.sse import PING, encode_json, named_event, split_once
from pegainfer_server.protocol.response import (
    InsideEvent,
    ItemEvent,
    OutputText,
    ReasoningText,
    Response,
    ResponseEvent,
    ResponseFault,
    Status,
    SummaryText,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec import UnsetType

    from pegainfer_server.api_error import ApiError
    from pegainfer_server.generation import Generation, Piece
    from pegainfer_server.job import Job
    from pegainfer_server.protocol.response import OutputPart
    from pegainfer_server.protocol.responses_request import ResponsesRequest
    from pegainfer_server.protocol.usage import Usage


class ResponseEvents:
    """Implements `ChunkEncoder`."""

    ping = PING

    def __init__(self, data: ResponsesRequest, job: Job) -> None:
        self._frame = ResponseFrame(data, job)
        self._parts = AnswerParts()
        self._number = -1
        # The events of a growing part differ in number and text only.
        self._around: dict[str, tuple[bytes, bytes, bytes]] = {}

    def opening(self) -> bytes:
        """The response before anything is known of it."""
        response = self._frame.response("in_progress")
        return self._whole("created", response) + self._whole("in_progress", response)

    def pieces(self, pieces: Sequence[Piece], generation: Generation) -> bytes:
        """Events for what the pieces add, and the last ones when the answer has ended."""
        # Each step is shown before the next one is taken, while its part is still as short.
        body = b"".join(self._step(step) for piece in pieces for step in self._parts.take(piece))
        if generation.ending is None:
            return body
        response = self._frame.ended(self._parts.parts, generation, generation.ending)
        body += b"".join(self._closed(step.part, response.status) for step in self._parts.end())
        return body + self._whole(response.status, response)

    def usage(self, usage: Usage) -> bytes:
        """The last event has it."""
        return b""

    def error(self, error: ApiError) -> bytes:
        """The response with what there was of it."""
        fault = ResponseFault(code=_fault_code(error), message=error.detail.message)
        response = self._frame.response("failed", self._parts.parts, error=fault)
        return self._whole("failed", response)

    def closing(self) -> bytes:
        """The last event is known by its type."""
        return b""

    def _step(self, step: PartStep) -> bytes:
        if step.change is PartChange.OPENED:
            self._around.clear()
            return self._opened(step.part)
        if step.change is PartChange.GREW:
            return self._grew(step.part, step.text)
        return self._closed(step.part, "completed")

    def _opened(self, part: Part) -> bytes:
        body = self._item("added", part, "in_progress")
        if part.kind is PartKind.TEXT:
            return body + self._inside("content_part.added", part, inner=OutputText(text=""))
        if part.kind is PartKind.CALL:
            return body
        if self._frame.summarises:
            empty = SummaryText(text="")
            body += self._inside("reasoning_summary_part.added", part, inner=empty)
        return body + self._inside("content_part.added", part, inner=ReasoningText(text=""))

    def _grew(self, part: Part, text: str) -> bytes:
        if part.kind is PartKind.TEXT:
            return self._delta("output_text.delta", part, text)
        if part.kind is PartKind.CALL:
            return self._delta("function_call_arguments.delta", part, text)
        body = self._delta("reasoning_text.delta", part, text)
        if self._frame.summarises:
            body += self._delta("reasoning_summary_text.delta", part, text)
        return body

    def _delta(self, name: str, part: Part, text: str) -> bytes:
        around = self._around.get(name)
        if around is None:
            event = self._inside(name, part, delta=TEXT_MARKER)
            number = b":%d," % self._number
            self._number -= 1
            head, _, rest = event.partition(number)
            around = self._around[name] = (head, *split_once(rest, TEXT_MARKER))
        head, middle, tail = around
        return b"%b:%d,%b%b%b" % (head, self._next_number(), middle, encode_json(text), tail)

    def _closed(self, part: Part, status: Status) -> bytes:
        text = part.text
        if part.kind is PartKind.TEXT:
            body = self._inside("output_text.done", part, text=text)
            body += self._inside("content_part.done", part, inner=OutputText(text=text))
        elif part.kind is PartKind.CALL:
            body = self._inside("function_call_arguments.done", part, arguments=text)
        else:
            body = self._inside("reasoning_text.done", part, text=text)
            body += self._inside("content_part.done", part, inner=ReasoningText(text=text))
            if self._frame.summarises:
                summary = SummaryText(text=text)
                body += self._inside("reasoning_summary_text.done", part, text=text)
                body += self._inside("reasoning_summary_part.done", part, inner=summary)
        return body + self._item("done", part, status)

    def _inside(
        self,
        name: str,
        part: Part,
        *,
        inner: OutputPart | UnsetType = UNSET,
        delta: str | UnsetType = UNSET,
        text: str | UnsetType = UNSET,
        arguments: str | UnsetType = UNSET,
    ) -> bytes:
        is_summary, is_call = "summary" in name, part.kind is PartKind.CALL
        event = InsideEvent(
            type=f"response.{name}",
            sequence_number=self._next_number(),
            item_id=self._frame.item_id(part),
            output_index=part.index,
            content_index=UNSET if is_summary or is_call else 0,
            summary_index=0 if is_summary else UNSET,
            part=inner,
            delta=delta,
            text=text,
            arguments=arguments,
            name=UNSET if arguments is UNSET else self._frame.called(part)[0],
            logprobs=[] if name.startswith("output_text") else UNSET,
        )
        return named_event(event.type, event)

    def _item(self, name: str, part: Part, status: Status) -> bytes:
        event = ItemEvent(
            type=f"response.output_item.{name}",
            sequence_number=self._next_number(),
            output_index=part.index,
            item=self._frame.item(part, status),
        )
        return named_event(event.type, event)

    def _whole(self, name: str, response: Response) -> bytes:
        event = ResponseEvent(
            type=f"response.{name}", sequence_number=self._next_number(), response=response
        )
        return named_event(event.type, event)

    def _next_number(self) -> int:
        self._number += 1
        return self._number


def _fault_code(error: ApiError) -> str:
    """This API's own codes where it has one."""
    if error.status >= 500:
        return "server_error"
    return "rate_limit_exceeded" if error.status == 429 else error.detail.code or "invalid_prompt"
