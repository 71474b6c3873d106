"""An engine under test, asked without asyncio: every event is kept, also those nobody expects."""

from __future__ import annotations

import itertools
import random
import threading
import time
from typing import TYPE_CHECKING, Final

from pegainfer_core.contract import (
    TERMINAL_EVENTS,
    GenerateRequest,
    SamplingParams,
    Scheduled,
    Tokens,
)
from pegainfer_core.testing.conformance.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pegainfer_core.contract import EngineHandle, EngineMetrics, StepFrame, TokenEvent

_SETTLE_S: Final = 5.0
_POLL_S: Final = 0.005


def greedy(max_tokens: int | None, **fields: object) -> SamplingParams:
    """Parameters whose answer is certain."""
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, **fields)  # type: ignore[arg-type]


class Session:
    """One engine and all it has said.

    Attributes:
        handle: The engine.
        strays: Events of requests that were never made.
    """

    def __init__(self, handle: EngineHandle, timeout_s: float) -> None:
        """Connect to an engine; `timeout_s` bounds every wait."""
        self.handle = handle
        self.strays: list[TokenEvent] = []
        self._timeout_s = timeout_s
        self._ids = itertools.count(1)
        self._requests: dict[int, GenerateRequest] = {}
        self._events: dict[int, list[TokenEvent]] = {}
        self._changed = threading.Condition()
        handle.connect(self._take)

    def prompt(self, num_tokens: int, seed: int = 0) -> list[int]:
        """Arbitrary ids inside the vocabulary; the same for the same arguments."""
        rng = random.Random(f"{seed}/{num_tokens}")
        return [rng.randrange(self.handle.info.vocab_size) for _ in range(num_tokens)]

    def submit(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        *,
        eos_token_ids: Sequence[int] = (),
        sample_index: int = 0,
        priority: int = 0,
        cache_salt: str = "",
        lora: str | None = None,
        kv_transfer_params: dict[str, str] | None = None,
    ) -> int:
        """Queue a request and return its id; fields as in `GenerateRequest`."""
        request = GenerateRequest(
            request_id=next(self._ids),
            prompt_token_ids=list(prompt),
            params=params,
            eos_token_ids=list(eos_token_ids),
            sample_index=sample_index,
            priority=priority,
            cache_salt=cache_salt,
            lora=lora,
            kv_transfer_params=kv_transfer_params,
            arrival_s=time.monotonic(),
        )
        self._requests[request.request_id] = request
        self._events[request.request_id] = []
        self.handle.submit(request)
        return request.request_id

    def answer(self, request_id: int) -> Transcript:
        """Wait for a request's end and return its events up to there, checked."""
        self._wait(request_id, _has_ended, "its end")
        events = self._events[request_id]
        end = next(i for i, event in enumerate(events) if isinstance(event, TERMINAL_EVENTS))
        transcript = Transcript(self._requests[request_id], events[: end + 1])
        transcript.check()
        return transcript

    def generate(
        self, prompt: Sequence[int], params: SamplingParams, *, cache_salt: str = ""
    ) -> Transcript:
        """Run one request to its end."""
        return self.answer(self.submit(prompt, params, cache_salt=cache_salt))

    def generate_together(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams
    ) -> list[Transcript]:
        """Run requests side by side."""
        request_ids = [self.submit(prompt, params) for prompt in prompts]
        return [self.answer(request_id) for request_id in request_ids]

    def wait_scheduled(self, request_id: int) -> None:
        """Wait until a request is being computed, or has ended."""
        self._wait(request_id, lambda events: bool(events), "Scheduled")

    def wait_tokens(self, request_id: int, num_tokens: int) -> None:
        """Wait until a request has that many tokens, or has ended."""

        def enough(events: list[TokenEvent]) -> bool:
            counts = [len(event.token_ids) for event in events if isinstance(event, Tokens)]
            return sum(counts) >= num_tokens or _has_ended(events)

        self._wait(request_id, enough, f"{num_tokens} tokens")

    def is_scheduled(self, request_id: int) -> bool:
        """Whether work on a request has begun."""
        return any(isinstance(event, Scheduled) for event in self._events[request_id])

    def abort(self, request_id: int) -> Transcript:
        """End a request and return its events."""
        self.handle.abort(request_id)
        return self.answer(request_id)

    def everything(self) -> list[Transcript]:
        """All requests so far with all their events, whenever these came."""
        return [Transcript(self._requests[i], events) for i, events in self._events.items()]

    def settle(self) -> EngineMetrics:
        """Wait until the engine is idle and holds nothing for anyone; return its metrics.

        Raises:
            AssertionError: It still counts requests, or KV pages in use, when all have ended.
        """
        self.wait_metrics(
            lambda m: m.num_running == m.num_waiting == m.kv_used_pages == 0,
            "no running and no waiting request and no KV page in use, though all have ended",
        )
        metrics = self.handle.metrics()
        total = metrics.kv_total_pages
        assert 0 <= metrics.kv_cached_pages <= total, f"cached pages of {total}: {metrics}"
        return metrics

    def wait_metrics(self, ready: Callable[[EngineMetrics], bool], what: str) -> None:
        """Wait until a snapshot of the metrics, which may be some steps old, shows something."""
        deadline_s = time.monotonic() + min(_SETTLE_S, self._timeout_s)
        while not ready(metrics := self.handle.metrics()):
            assert time.monotonic() < deadline_s, f"the metrics never showed {what}: {metrics}"
            time.sleep(_POLL_S)

    def _take(self, frame: StepFrame) -> None:
        with self._changed:
            for event in frame.events:
                self._events.get(event.request_id, self.strays).append(event)
            self._changed.notify_all()

    def _wait(self, request_id: int, ready: Callable[[list[TokenEvent]], bool], what: str) -> None:
        events = self._events[request_id]
        with self._changed:
            in_time = self._changed.wait_for(lambda: ready(events), self._timeout_s)
        assert in_time, (
            f"waited {self._timeout_s:g} s for {what} of "
            f"{Transcript(self._requests[request_id], events)}; it has {events}; "
            f"the engine's health: {self.handle.health()}"
        )


def _has_ended(events: list[TokenEvent]) -> bool:
    return any(isinstance(event, TERMINAL_EVENTS) for event in events)
