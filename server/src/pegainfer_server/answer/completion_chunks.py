"""Events of a streamed completion: one for every step that made a token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from pegainfer_server.answer.chunks import TEXT_MARKER, DoneMarked
from pegainfer_server.answer.logprobs_view import LogprobsView
from pegainfer_server.answer.sse import encode_json, event, split_around_text
from pegainfer_server.protocol.completion import CompletionChunk, CompletionChunkChoice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.text import Tokenizer
    from pegainfer_server.generation import Ending, Generation, Piece
    from pegainfer_server.job import Job
    from pegainfer_server.protocol.usage import Usage

OBJECT = "text_completion"


class CompletionChunks(DoneMarked):
    """Implements `ChunkEncoder`."""

    def __init__(self, job: Job, tokenizer: Tokenizer) -> None:
        self._job = job
        self._id = f"cmpl-{job.request_id}"
        self._view = LogprobsView(tokenizer, job.logprobs or 0, tokens_as_ids=job.tokens_as_ids)
        self._shows_prompt_ids = job.return_token_ids
        plain = CompletionChunkChoice(index=job.index, text=TEXT_MARKER, finish_reason=None)
        self._head, self._tail = split_around_text(self._chunk([plain]), TEXT_MARKER)

    def opening(self) -> bytes:
        """Nothing comes before the text."""
        return b""

    def pieces(self, pieces: Sequence[Piece], generation: Generation) -> bytes:
        """One event a piece; the last one carries the finish reason."""
        ending = generation.ending
        open_pieces = pieces if ending is None else pieces[:-1]
        if self._job.detailed:
            usage = generation.usage if self._job.continuous_usage else None
            events = [self._event(piece, None, usage) for piece in open_pieces]
        else:
            usage = None
            head, tail = self._head, self._tail
            events = [head + encode_json(piece.text) + tail for piece in open_pieces]
        if ending is not None:
            events.append(self._event(pieces[-1], ending, usage))
        return b"".join(events)

    def usage(self, usage: Usage) -> bytes:
        """The event with the token counts."""
        return event(self._chunk([], usage))

    def _event(self, piece: Piece, ending: Ending | None, usage: Usage | None) -> bytes:
        job = self._job
        choice = CompletionChunkChoice(
            index=job.index,
            text=piece.text,
            logprobs=UNSET if job.logprobs is None else self._view.completion(piece),
            prompt_token_ids=job.prompt_token_ids if self._shows_prompt_ids else UNSET,
            token_ids=piece.new_token_ids if job.return_token_ids else UNSET,
            finish_reason=None if ending is None else ending.finish_reason,
            stop_reason=UNSET if ending is None else ending.stop_reason,
        )
        self._shows_prompt_ids = False
        return event(self._chunk([choice], usage))

    def _chunk(
        self, choices: list[CompletionChunkChoice], usage: Usage | None = None
    ) -> CompletionChunk:
        return CompletionChunk(
            id=self._id,
            object=OBJECT,
            created=self._job.created,
            model=self._job.model,
            choices=choices,
            usage=UNSET if usage is None else usage,
        )
