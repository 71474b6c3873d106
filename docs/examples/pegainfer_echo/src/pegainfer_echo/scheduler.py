"""Echo's scheduler: first come, first served, one token per running request and step."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from pegainfer_core.contract import EngineMetrics, FinishReason
from pegainfer_core.engine import check_request, clamp_max_tokens

if TYPE_CHECKING:
    from pegainfer_core.contract import GenerateRequest, ServePlan
    from pegainfer_core.engine import Ledger
    from pegainfer_echo.plugin import EchoOptions


class _Running:
    """A request's answer, the ids that end it, and how far it has come."""

    __slots__ = ("answer", "limit", "min_tokens", "position", "stops")

    def __init__(self, request: GenerateRequest, answer: list[int], limit: int) -> None:
        self.answer = answer
        self.limit = limit
        self.position = 0
        self.min_tokens = request.params.min_tokens
        eos = () if request.params.ignore_eos else request.eos_token_ids
        self.stops = frozenset(eos) | frozenset(request.params.stop_token_ids)


class EchoScheduler:
    """Implements `pegainfer_core.engine.Scheduler` without a model."""

    def __init__(self, options: EchoOptions, plan: ServePlan) -> None:
        self._options = options
        self._plan = plan
        self._script = list((options.echo_script or "").encode())
        self._waiting: OrderedDict[int, GenerateRequest] = OrderedDict()
        self._running: dict[int, _Running] = {}
        self._num_steps = 0

    def submit(self, request: GenerateRequest, ledger: Ledger) -> None:
        """Queue a request, or reject what can never be served."""
        reason = check_request(request, self._plan)
        if reason is not None:
            ledger.reject(request.request_id, reason)
            return
        self._waiting[request.request_id] = request

    def abort(self, request_id: int, ledger: Ledger) -> None:
        """Forget a request wherever it is."""
        self._waiting.pop(request_id, None)
        self._running.pop(request_id, None)
        ledger.abort(request_id)

    def has_work(self) -> bool:
        """Whether any request waits or runs."""
        return bool(self._waiting or self._running)

    def step(self, ledger: Ledger) -> None:
        """Admit what fits, then one token for everyone."""
        self._num_steps += 1
        if self._num_steps == self._options.echo_fail_after:
            raise RuntimeError(f"asked to fail in step {self._num_steps}")
        admitted = self._admit(ledger)
        delay_ms = self._options.echo_prefill_ms if admitted else self._options.echo_decode_ms
        if delay_ms:
            time.sleep(delay_ms / 1e3)
        for request_id, running in list(self._running.items()):
            self._advance(request_id, running, ledger)

    def reset_prefix_cache(self) -> None:
        """Nothing is cached."""

    def metrics(self) -> EngineMetrics:
        """Queue lengths; there is no KV."""
        return EngineMetrics(num_running=len(self._running), num_waiting=len(self._waiting))

    def close(self) -> None:
        """Nothing to release."""

    def _admit(self, ledger: Ledger) -> bool:
        room = self._plan.max_num_seqs - len(self._running)
        admitted = min(room, len(self._waiting))
        for _ in range(admitted):
            request_id, request = self._waiting.popitem(last=False)
            limit = clamp_max_tokens(request, self._plan.max_model_len)
            answer = self._script or request.prompt_token_ids
            self._running[request_id] = _Running(request, answer, limit)
            ledger.schedule(request_id, 0)
        return admitted > 0

    def _advance(self, request_id: int, running: _Running, ledger: Ledger) -> None:
        if running.limit == 0:
            self._end(request_id, ledger, FinishReason.LENGTH)
            return
        token_id = running.answer[running.position % len(running.answer)]
        running.position += 1
        if token_id in running.stops and running.position > running.min_tokens:
            del self._running[request_id]
            ledger.finish(request_id, FinishReason.STOP, stop_token_id=token_id)
            return
        ledger.push(request_id, [token_id])
        if running.position >= running.limit:
            self._end(request_id, ledger, FinishReason.LENGTH)

    def _end(self, request_id: int, ledger: Ledger, reason: FinishReason) -> None:
        del self._running[request_id]
        ledger.finish(request_id, reason)
