"""One answer in the making: engine events in, a `RequestOutput` and a `RequestRecord` out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from pegainfer_core.contract import Error, Finished, PromptTokens, Rejected, Scheduled, Tokens
from pegainfer_core.llm.request_output import RequestOutput
from pegainfer_core.plugin import RequestRecord
from pegainfer_core.text import TextOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.contract import TokenEvent, TokenLogprobs
    from pegainfer_core.llm.job import Job
    from pegainfer_core.text import Tokenizer


class TextSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer becomes text.

    Attributes:
        stop: Stop strings.
        include_stop: Show the stop string, or the client's stop token.
        skip_special_tokens: Hide special tokens.
    """

    stop: tuple[str, ...] = ()
    include_stop: bool = False
    skip_special_tokens: bool = True

    @classmethod
    def of(
        cls, stop: str | Sequence[str] | None, include_stop: bool, skip_special_tokens: bool
    ) -> TextSettings:
        """Read what a caller gave.

        Raises:
            ValueError: A stop string is empty.
        """
        strings = (stop,) if isinstance(stop, str) else tuple(stop or ())
        if not all(strings):
            raise ValueError("stop must not hold an empty string")
        return cls(stop=strings, include_stop=include_stop, skip_special_tokens=skip_special_tokens)


class Answer:
    """Collects one request's events.

    Attributes:
        finish_reason: "stop", "length", "abort", "rejected" or "error" once the answer has ended,
            "" before.
        detail: Why, for the last two.
    """

    def __init__(
        self,
        job: Job,
        tokenizer: Tokenizer,
        end_token_ids: frozenset[int],
        settings: TextSettings,
    ) -> None:
        params = job.params
        self._job = job
        self._output = TextOutput(
            tokenizer,
            stop=settings.stop,
            include_stop_str_in_output=settings.include_stop,
            skip_special_tokens=settings.skip_special_tokens,
            end_token_ids=() if params.ignore_eos else end_token_ids,
            stop_token_ids=params.stop_token_ids,
            min_tokens=params.min_tokens,
        )
        self.finish_reason = ""
        self.detail = ""
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        self._prompt_logprobs: list[TokenLogprobs | None] | None = None
        self._stop_reason: str | int | None = None
        self._cached_tokens = 0
        self._arrival_s = time.monotonic()
        self._scheduled_s: float | None = None
        self._first_token_s: float | None = None

    @property
    def failed(self) -> bool:
        """Whether it ended without an answer."""
        return self.finish_reason in ("rejected", "error")

    @property
    def num_tokens(self) -> int:
        """Tokens of the answer so far."""
        return len(self._token_ids)

    def take(self, event: TokenEvent) -> None:
        """Take the next event; what comes after the end is ignored."""
        if self.finish_reason:
            return
        if isinstance(event, Tokens):
            self._add(event.token_ids, event.logprobs)
        elif isinstance(event, Scheduled):
            self._scheduled_s = self._since_arrival()
            self._cached_tokens = event.cached_tokens
        elif isinstance(event, PromptTokens):
            self._prompt_logprobs = event.logprobs
        elif isinstance(event, Finished):
            self._finish(event)
        elif isinstance(event, Rejected):
            self.finish_reason, self.detail = "rejected", str(event.reason)
        elif isinstance(event, Error):
            self.fail(event.message)

    def fail(self, detail: str) -> None:
        """End it without an answer."""
        self.finish_reason, self.detail = "error", detail

    def result(self) -> RequestOutput:
        """The answer, once it has ended."""
        wanted = self._job.params.logprobs is not None
        return RequestOutput(
            prompt=self._job.prompt.text,
            prompt_token_ids=self._job.prompt.token_ids,
            text="".join(self._texts),
            token_ids=self._token_ids,
            finish_reason=self.finish_reason,
            stop_reason=self._stop_reason,
            logprobs=self._logprobs if wanted else None,
            prompt_logprobs=self._prompt_logprobs,
            num_cached_tokens=self._cached_tokens,
            sample_index=self._job.sample_index,
        )

    def record(self, request_id: int, model: str, family: str) -> RequestRecord:
        """What plugins are told about the ended request."""
        elapsed_s = self._since_arrival()
        return RequestRecord(
            request_id=request_id,
            external_id="",
            model=model,
            family=family,
            finish_reason=self.finish_reason or "abort",
            detail=self.detail,
            arrival_unix_s=time.time() - elapsed_s,
            scheduled_s=self._scheduled_s,
            first_token_s=self._first_token_s,
            finished_s=elapsed_s,
            prompt_tokens=len(self._job.prompt.token_ids),
            cached_tokens=self._cached_tokens,
            completion_tokens=len(self._token_ids),
        )

    def _add(self, token_ids: list[int], logprobs: list[TokenLogprobs] | None) -> None:
        if self._first_token_s is None:
            self._first_token_s = self._since_arrival()
        delta = self._output.push(token_ids)
        # A stop string ends the answer at the token that completes it, whatever else was made.
        self._token_ids += token_ids[: delta.num_tokens]
        self._logprobs += (logprobs or [])[: delta.num_tokens]
        self._texts.append(delta.text)
        if delta.stop_string is not None:
            self.finish_reason, self._stop_reason = "stop", delta.stop_string

    def _finish(self, event: Finished) -> None:
        stop_id = event.stop_token_id
        if stop_id is not None:
            self._add([stop_id], None if event.stop_logprobs is None else [event.stop_logprobs])
        tail = self._output.finish()
        self._texts.append(tail.text)
        if tail.stop_string is not None:
            self.finish_reason, self._stop_reason = "stop", tail.stop_string
            return
        self.finish_reason = event.reason.value
        self._stop_reason = self._output.stop_reason(stop_id)

    def _since_arrival(self) -> float:
        return time.monotonic() - self._arrival_s
