"""One running request: engine events in, pieces of the answer out, a record at the end.

Knows text, but nothing of how pieces are shown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from pegainfer_core.contract import (
    EngineError,
    Error,
    Finished,
    PromptTokens,
    Rejected,
    Scheduled,
    TokenLogprobs,
    Tokens,
)
from pegainfer_core.plugin import RequestRecord
from pegainfer_core.text import AnswerDelta, join_deltas
from pegainfer_server.answer_output import AnswerOutput
from pegainfer_server.api_error import ApiError, invalid, rejected
from pegainfer_server.protocol.usage import Usage
from pegainfer_server.timeline import Timeline

if TYPE_CHECKING:
    from pegainfer_core.contract import TokenEvent
    from pegainfer_core.engine import RequestStream
    from pegainfer_server.job import Job
    from pegainfer_server.metrics import Histogram
    from pegainfer_server.served_model import ServedModel

_ABORTED = "abort"


class Piece(msgspec.Struct):
    """What one engine step adds to an answer.

    Attributes:
        text: Newly visible text, perhaps empty, perhaps of earlier tokens.
        token_ids: The step's tokens.
        logprobs: One entry a token when asked for; None for the first token of an echoed prompt.
        text_offsets: Character at which each token begins, when log-probabilities are asked for.
        echoed: Whether this is the prompt and not part of the answer.
        answer: The text taken apart; None where all of it is content.
    """

    text: str
    token_ids: list[int]
    logprobs: Sequence[TokenLogprobs | None] | None = None
    text_offsets: Sequence[int] = ()
    echoed: bool = False
    answer: AnswerDelta | None = None

    @property
    def new_token_ids(self) -> list[int]:
        """The generated ones among the ids."""
        return [] if self.echoed else self.token_ids


class Ending(msgspec.Struct, frozen=True):
    """How an answer ended; `stop_reason` is null for the model's own end tokens."""

    finish_reason: str
    stop_reason: str | int | None = None
    called: bool = False

    @property
    def chat_reason(self) -> str:
        """What chats call it: an answer that calls a tool has not just stopped."""
        return "tool_calls" if self.called and self.finish_reason == "stop" else self.finish_reason


class GenerationOwner(Protocol):
    """Who starts generations and hears of their ends."""

    def token_gap_histogram(self) -> Histogram:
        """Takes the seconds between tokens."""
        ...

    def engine_error(self, message: str) -> ApiError:
        """What a client is told when the engine ends an admitted request."""
        ...

    def generation_closed(self, generation: Generation, record: RequestRecord) -> None:
        """A generation is over."""
        ...


class Generation:
    """A submitted job.

    Attributes:
        job: What was asked for.
        stream: The engine's events.
        ending: Set with the last pieces.
        prompt_logprobs: Of the prompt's tokens, once the engine has sent them.
        abandoned: Whether nobody waits for the answer any more.
    """

    def __init__(
        self,
        job: Job,
        model: ServedModel,
        owner: GenerationOwner,
        first: Generation | None = None,
    ) -> None:
        """Submit the job; `first` is the first sample of its prompt, where this is a later one.

        Raises:
            ApiError: 404, the adapter is not loaded any more.
            EngineError: The engine is dead.
        """
        self.job = job
        self.ending: Ending | None = None
        self.prompt_logprobs: list[TokenLogprobs | None] | None = None
        self.abandoned = False
        self._model = model
        self._owner = owner
        self._timeline = Timeline(owner.token_gap_histogram())
        self._error: ApiError | None = None
        self._closed = False
        self._cached_tokens = 0
        self._echo = job.echo
        self._output = AnswerOutput(job, model.tokenizer, model.text.end_token_ids)
        # Looked up once more: it may have been taken out since the request came.
        adapter = model.adapter_for(job.model)
        self._lora = None if adapter is None else adapter.name
        self.stream: RequestStream = model.client.submit(
            job.prompt_token_ids,
            job.params,
            eos_token_ids=sorted(model.text.end_token_ids),
            sample_index=job.sample_index,
            priority=job.priority,
            cache_salt=job.cache_salt,
            external_id=job.request_id,
            after=None if first is None else first.stream,
            lora=self._lora,
        )

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        output = self._output
        return Usage.of(
            len(self.job.prompt_token_ids),
            output.num_tokens,
            self._cached_tokens,
            output.num_reasoning_tokens,
        )

    async def next_pieces(self) -> list[Piece]:
        """Wait for the engine and return what it added; not to be called after the ending.

        Raises:
            ApiError: The engine refused or lost the request.
        """
        pieces: list[Piece] = []
        if self._error is None:
            for event in await self.stream.next_events():
                if type(event) is Tokens:
                    pieces.append(self._tokens(event))
                else:
                    self._take(event, pieces)
                if self.ending is not None:
                    break
            self._timeline.note_tokens(self._output.num_tokens)
        # An error waits for the next call when there is something to show before it.
        if self._error is not None and not pieces:
            raise self._error
        return pieces

    def abandon(self) -> None:
        """Nobody reads the answer: let the engine stop."""
        self.abandoned = True
        self._abort()

    def close(self) -> None:
        """Account for the request; ends it if it still runs. Harmless when called again."""
        if self._closed:
            return
        self._closed = True
        if self.ending is None and self._error is None:
            self._abort()
        self._owner.generation_closed(self, self._record())

    def _abort(self) -> None:
        with contextlib.suppress(EngineError):  # A dead engine has stopped already.
            self.stream.abort()

    def _take(self, event: TokenEvent, pieces: list[Piece]) -> None:
        if isinstance(event, Scheduled):
            self._timeline.note_start(event.scheduled_s)
            self._cached_tokens = event.cached_tokens
            if self.job.params.prompt_logprobs is None:
                self._take_echo(pieces)
        elif isinstance(event, PromptTokens):
            self.prompt_logprobs = event.logprobs
            self._take_echo(pieces)
        elif isinstance(event, Finished):
            self._finish(event, pieces)
        elif isinstance(event, Rejected):
            self._error = rejected(event.reason, self.job.prompt_param, self.job.renames)
        elif isinstance(event, Error):
            self._error = self._engine_error(event)

    def _engine_error(self, event: Error) -> ApiError:
        if not event.field:
            return self._owner.engine_error(event.message)
        name = self.job.renames.get(event.field, event.field)
        return invalid(event.message.replace(event.field, name, 1), name)

    def _tokens(self, event: Tokens) -> Piece:
        delta, answer = self._output.push(event.token_ids)
        offsets = delta.text_offsets or ()
        if delta.stop_string is None and not self._output.too_many_calls:
            return Piece(delta.text, event.token_ids, event.logprobs, offsets, answer=answer)
        # The answer ends here, whatever else the engine has made already.
        self.ending = Ending("stop", delta.stop_string, self._output.called)
        self._abort()
        kept = delta.num_tokens
        logprobs = event.logprobs[:kept] if event.logprobs is not None else None
        return Piece(delta.text, event.token_ids[:kept], logprobs, offsets, answer=answer)

    def _finish(self, event: Finished, pieces: list[Piece]) -> None:
        last = Piece("", [], [] if self.job.logprobs is not None else None)
        if event.stop_token_id is not None:
            delta, last.answer = self._output.push([event.stop_token_id])
            last.text, last.token_ids = delta.text, [event.stop_token_id]
            if event.stop_logprobs is not None:
                last.logprobs, last.text_offsets = [event.stop_logprobs], delta.text_offsets or ()
            pieces.append(last)
        elif pieces:
            last = pieces[-1]  # The same step made the last token and found the end.
        else:
            pieces.append(last)
        tail, answer = self._output.finish()
        last.text += tail.text
        if answer is not None:
            last.answer = join_deltas([last.answer or AnswerDelta(), answer])
        if tail.stop_string is not None:
            self.ending = Ending("stop", tail.stop_string, self._output.called)
        else:
            stop_reason = self._output.stop_reason(event.stop_token_id)
            self.ending = Ending(event.reason.value, stop_reason, self._output.called)

    def _take_echo(self, pieces: list[Piece]) -> None:
        """Once: the prompt as the answer's first piece."""
        echo, self._echo = self._echo, None
        if echo is not None:
            logprobs = self.prompt_logprobs if self.job.logprobs is not None else None
            ids = self.job.prompt_token_ids
            pieces.append(Piece(echo.text, ids, logprobs, echo.text_offsets, echoed=True))

    def _record(self) -> RequestRecord:
        reason = self.ending.finish_reason if self.ending else _ABORTED
        detail = ""
        if self._error is not None:
            detail = self._error.detail.message
            reason = "error" if self._error.status >= 500 else "rejected"
        job, timeline = self.job, self._timeline
        return RequestRecord(
            request_id=self.stream.request_id,
            external_id=job.request_id,
            model=job.model,
            family=self._model.info.family,
            endpoint=job.endpoint,
            stream=job.stream,
            finish_reason=_ABORTED if self.abandoned and self._error is None else reason,
            detail=detail,
            arrival_unix_s=timeline.arrival_unix_s,
            scheduled_s=timeline.scheduled_s,
            first_token_s=timeline.first_token_s,
            finished_s=timeline.elapsed_s,
            prompt_tokens=len(job.prompt_token_ids),
            cached_tokens=self._cached_tokens,
            completion_tokens=self._output.num_tokens,
            lora=self._lora,
        )
