"""Events of a streamed chat: the role, the content, the ending, each an event of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from pegainfer_server.answer.chunks import TEXT_MARKER, DoneMarked
from pegainfer_server.answer.logprobs_view import LogprobsView
from pegainfer_server.answer.sse import encode_json, event, split_around_text
from pegainfer_server.protocol.chat import ChatChunk, ChatChunkChoice, ChatDelta
from pegainfer_server.protocol.tools import FunctionDelta, ToolCallChunk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.text import AnswerDelta, Tokenizer
    from pegainfer_server.generation import Ending, Generation, Piece
    from pegainfer_server.job import Job
    from pegainfer_server.protocol.usage import Usage

OBJECT = "chat.completion.chunk"


class ChatChunks(DoneMarked):
    """Implements `ChunkEncoder`."""

    def __init__(self, job: Job, tokenizer: Tokenizer) -> None:
        self._job = job
        self._id = f"chatcmpl-{job.request_id}"
        self._view = LogprobsView(tokenizer, job.logprobs or 0, tokens_as_ids=job.tokens_as_ids)
        self._index = job.index
        plain = self._choice(ChatDelta(content=TEXT_MARKER))
        self._head, self._tail = split_around_text(self._chunk([plain]), TEXT_MARKER)
        thinking = self._choice(ChatDelta(reasoning_content=TEXT_MARKER, reasoning=TEXT_MARKER))
        # Its text stands there twice.
        self._around_reasoning = event(self._chunk([thinking])).split(encode_json(TEXT_MARKER))

    def opening(self) -> bytes:
        """The role, which clients wait for before any text."""
        chunk = self._chunk([self._choice(ChatDelta(role="assistant", content=""))])
        if self._job.return_token_ids:
            chunk = self._chunk(chunk.choices, prompt_token_ids=self._job.prompt_token_ids)
        return event(chunk)

    def pieces(self, pieces: Sequence[Piece], generation: Generation) -> bytes:
        """Events for the pieces that have something to show, then one for the ending."""
        usage = generation.usage if self._job.continuous_usage else None
        if self._job.detailed:
            shown = [piece for piece in pieces if piece.text or piece.token_ids or piece.answer]
            events = [self._detailed(piece, usage) for piece in shown]
        else:
            events = [self._plain(piece) for piece in pieces]
        if generation.ending is not None:
            events.append(self._ending(generation.ending, usage))
        return b"".join(events)

    def usage(self, usage: Usage) -> bytes:
        """The event with the token counts."""
        return event(self._chunk([], usage))

    def _plain(self, piece: Piece) -> bytes:
        answer = piece.answer
        if answer is None or not (answer.reasoning or answer.tool_calls):
            text = piece.text if answer is None else answer.content
            return self._head + encode_json(text) + self._tail if text else b""
        if not (answer.content or answer.tool_calls):
            return encode_json(answer.reasoning).join(self._around_reasoning)
        choices = map(self._choice, _deltas(answer))
        return b"".join(event(self._chunk([choice])) for choice in choices)

    def _detailed(self, piece: Piece, usage: Usage | None) -> bytes:
        """What belongs to the piece's tokens comes with its first event."""
        job, answer = self._job, piece.answer
        deltas = [ChatDelta(content=piece.text)] if answer is None else _deltas(answer)
        first = ChatChunkChoice(
            index=self._index,
            delta=deltas[0] if deltas else ChatDelta(content=""),
            logprobs=UNSET if job.logprobs is None else self._view.chat(piece),
            token_ids=piece.new_token_ids if job.return_token_ids else UNSET,
            finish_reason=None,
        )
        choices = (first, *map(self._choice, deltas[1:]))
        return b"".join(event(self._chunk([choice], usage)) for choice in choices)

    def _ending(self, ending: Ending, usage: Usage | None) -> bytes:
        choice = ChatChunkChoice(
            index=self._index,
            delta=ChatDelta(),
            finish_reason=ending.chat_reason,
            stop_reason=ending.stop_reason,
        )
        return event(self._chunk([choice], usage))

    def _choice(self, delta: ChatDelta) -> ChatChunkChoice:
        return ChatChunkChoice(index=self._index, delta=delta, finish_reason=None)

    def _chunk(
        self,
        choices: list[ChatChunkChoice],
        usage: Usage | None = None,
        prompt_token_ids: list[int] | None = None,
    ) -> ChatChunk:
        return ChatChunk(
            id=self._id,
            object=OBJECT,
            created=self._job.created,
            model=self._job.model,
            choices=choices,
            usage=UNSET if usage is None else usage,
            prompt_token_ids=UNSET if prompt_token_ids is None else prompt_token_ids,
        )


def _deltas(answer: AnswerDelta) -> list[ChatDelta]:
    """One thing in each delta, as clients expect."""
    deltas: list[ChatDelta] = []
    if answer.reasoning:
        deltas.append(ChatDelta(reasoning_content=answer.reasoning, reasoning=answer.reasoning))
    if answer.content:
        deltas.append(ChatDelta(content=answer.content))
    for call in answer.tool_calls:
        if call.name is not None:
            opening = ToolCallChunk(
                index=call.index,
                id=call.id or "",
                type="function",
                function=FunctionDelta(name=call.name, arguments=""),
            )
            deltas.append(ChatDelta(tool_calls=[opening]))
        if call.arguments:
            more = FunctionDelta(arguments=call.arguments)
            deltas.append(ChatDelta(tool_calls=[ToolCallChunk(index=call.index, function=more)]))
    return deltas
