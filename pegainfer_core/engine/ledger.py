"""The only way an engine talks to its clients: accounts from submission to one terminal each.

Collects a step's events into one frame, counts what was shipped, and knows nothing of scheduling.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pegainfer_core.contract import (
    Error,
    Finished,
    FinishReason,
    KvTransfer,
    PromptTokens,
    Rejected,
    RejectReason,
    Scheduled,
    StepFrame,
    TokenEvent,
    TokenLogprobs,
    Tokens,
)

if TYPE_CHECKING:
    from pegainfer_core.contract import GenerateRequest


class LedgerError(RuntimeError):
    """A scheduler broke the ledger's rules; a bug in the family, fatal for the engine."""


@dataclass(slots=True)
class _Account:
    prompt_tokens: int
    arrival_s: float
    scheduled: bool = False
    completion_tokens: int = 0


class Ledger:
    """Accounts of open requests and the frame being built.

    Lives on the engine thread. Every method raises `LedgerError` for an account that is not open.

    Attributes:
        finished: Ended requests by `FinishReason`.
        num_failed: Requests ended by `fail`.
        num_rejected: Requests ended by `reject`.
        num_scheduled: Requests whose work began.
        queue_s: How long they had waited for that, together.
        prompt_tokens: Prompt tokens of every scheduled request.
        generation_tokens: Tokens generated, end tokens included.
    """

    def __init__(self) -> None:
        self._open: dict[int, _Account] = {}
        self._events: list[TokenEvent] = []
        self.finished: dict[FinishReason, int] = dict.fromkeys(FinishReason, 0)
        self.num_failed = 0
        self.num_rejected = 0
        self.num_scheduled = 0
        self.queue_s = 0.0
        self.prompt_tokens = 0
        self.generation_tokens = 0

    def __len__(self) -> int:
        """Open accounts."""
        return len(self._open)

    def is_open(self, request_id: int) -> bool:
        """Whether the request was opened and has had no terminal."""
        return request_id in self._open

    def open(self, request: GenerateRequest) -> None:
        """Open the account of a submitted request (the driver's part)."""
        if request.request_id in self._open:
            raise LedgerError(f"request {request.request_id} is already open")
        arrival_s = request.arrival_s or time.monotonic()
        self._open[request.request_id] = _Account(len(request.prompt_token_ids), arrival_s)

    def schedule(self, request_id: int, cached_tokens: int) -> None:
        """Say, exactly once and first, that the request's tokens are about to be computed."""
        account = self._account(request_id)
        if account.scheduled:
            raise LedgerError(f"request {request_id} was scheduled twice")
        account.scheduled = True
        now_s = time.monotonic()
        self.num_scheduled += 1
        self.queue_s += max(now_s - account.arrival_s, 0.0)
        self.prompt_tokens += account.prompt_tokens
        self._events.append(
            Scheduled(
                request_id,
                account.arrival_s,
                now_s,
                account.prompt_tokens,
                cached_tokens,
            )
        )

    def push(
        self, request_id: int, token_ids: list[int], logprobs: list[TokenLogprobs] | None = None
    ) -> None:
        """Ship generated ids; `logprobs`, when given, is parallel to them."""
        account = self._open.get(request_id) or self._account(request_id)
        if not account.scheduled:
            raise LedgerError(f"request {request_id} got tokens before it was scheduled")
        count = len(token_ids)
        account.completion_tokens += count
        self.generation_tokens += count
        self._events.append(Tokens(request_id, token_ids, logprobs))

    def push_prompt(self, request_id: int, logprobs: list[TokenLogprobs | None]) -> None:
        """Ship the prompt's log-probabilities, all at once."""
        self._account(request_id)
        self._events.append(PromptTokens(request_id, logprobs))

    def push_kv_transfer(self, request_id: int, params: dict[str, str]) -> None:
        """Ship hand-off data."""
        self._account(request_id)
        self._events.append(KvTransfer(request_id, params))

    def finish(
        self,
        request_id: int,
        reason: FinishReason,
        stop_token_id: int | None = None,
        stop_logprobs: TokenLogprobs | None = None,
    ) -> None:
        """End a request. A given stop token is counted here; it must not have been pushed."""
        account = self._close(request_id)
        if stop_token_id is not None:
            account.completion_tokens += 1
            self.generation_tokens += 1
        self.finished[reason] += 1
        self._events.append(
            Finished(
                request_id,
                reason,
                account.prompt_tokens,
                account.completion_tokens,
                stop_token_id,
                stop_logprobs,
            )
        )

    def abort(self, request_id: int) -> None:
        """End a request on its client's wish, once its pages are accounted for."""
        self.finish(request_id, FinishReason.ABORT)

    def fail(self, request_id: int, message: str, field: str = "") -> None:
        """End a request that the engine could not complete; `field` as in `Error`."""
        account = self._close(request_id)
        self.num_failed += 1
        self._events.append(
            Error(request_id, message, account.prompt_tokens, account.completion_tokens, field)
        )

    def reject(self, request_id: int, reason: RejectReason) -> None:
        """End a request before any work was done for it."""
        if self._close(request_id).scheduled:
            raise LedgerError(f"request {request_id} was rejected after it was scheduled")
        self.num_rejected += 1
        self._events.append(Rejected(request_id, reason))

    def fail_all(self, message: str) -> None:
        """Fail every open request."""
        for request_id in list(self._open):
            self.fail(request_id, message)

    def take_frame(self) -> StepFrame | None:
        """The events since the last call, or None when there are none."""
        if not self._events:
            return None
        events, self._events = self._events, []
        return StepFrame(events)

    def _account(self, request_id: int) -> _Account:
        account = self._open.get(request_id)
        if account is None:
            raise LedgerError(f"request {request_id} is not open")
        return account

    def _close(self, request_id: int) -> _Account:
        account = self._account(request_id)
        del self._open[request_id]
        return account
