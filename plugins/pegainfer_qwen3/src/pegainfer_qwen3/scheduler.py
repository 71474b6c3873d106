"""Qwen3's scheduler: continuous batching with chunked prefill over paged KV.

Composes core's parts for a model whose only state is append-only KV. Knows nothing of weights or
devices: the runner does.
"""

from __future__ import annotations

import time
from itertools import chain
from typing import TYPE_CHECKING, Literal

from pegainfer_core.engine import (
    Admission,
    NoAdapters,
    NoOffload,
    RunningSet,
    Sequence,
    SlotPool,
    StepPipeline,
    StepPlan,
    WaitingQueue,
    decode_rows,
    hand_over,
    make_prefill_budget,
    match_late,
    plan_chunks,
    take_metrics,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.contract import EngineMetrics, GenerateRequest, ServePlan
    from pegainfer_core.engine import AdapterTable, GrammarDesk, KvOffload, Ledger, ModelRunner
    from pegainfer_core.kv import KvManager


class Qwen3Scheduler:
    """Implements `pegainfer_core.engine.Scheduler`."""

    def __init__(
        self,
        runner: ModelRunner,
        kv: KvManager,
        plan: ServePlan,
        kv_reserve: Literal["on-demand", "worst-case"] = "on-demand",
        *,
        offload: KvOffload | None = None,
        adapters: AdapterTable | None = None,
        grammars: GrammarDesk | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start idle, with the runner's KV pages; the runner is closed with the scheduler."""
        self._runner = runner
        self._budget = make_prefill_budget(plan)
        self._offload = offload or NoOffload(kv)
        self._pipeline = StepPipeline(runner, self._offload.watch(self._budget.observe), clock)
        self._kv = kv
        self._admission = Admission(plan, kv, kv_reserve, grammars=grammars)
        self._waiting = WaitingQueue()
        self._running = RunningSet()
        self._slots = SlotPool(plan.max_num_seqs)
        self._num_preemptions = 0
        self._adapters = adapters or NoAdapters()
        self._adapters.watch(lambda: chain(self._running, self._waiting))

    def submit(self, request: GenerateRequest, ledger: Ledger) -> None:
        """Queue a request, or reject what can never be served."""
        accepted = self._adapters.accept(request, self._admission)
        if isinstance(accepted, Sequence):
            self._waiting.push(accepted)
        else:
            ledger.reject(request.request_id, accepted)

    def abort(self, request_id: int, ledger: Ledger) -> None:
        """End a request wherever it is; unknown and ended ones are ignored."""
        running = self._running.get(request_id)
        if running is not None:
            self._leave(running)
        elif self._waiting.remove(request_id) is None:
            return
        ledger.abort(request_id)

    def has_work(self) -> bool:
        """Whether any request waits or runs, or a step or a copy of pages is under way."""
        return bool(self._waiting or self._running or self._pipeline or self._offload.busy)

    def step(self, ledger: Ledger) -> None:
        """Launch a step, then take over the results of the one before it.

        What they fill is published at the next step: its hashing would hold back their tokens.
        """
        self._offload.commit(self._running)
        plan = self._plan()
        if plan.rows:
            for row in plan.rows:
                self._admission.announce(row.sequence, ledger)
            self._pipeline.launch(plan)
        elif not self._pipeline:
            self._offload.rest()
        completed = self._pipeline.complete(num_kept=1 if plan.rows else 0)
        hand_over(completed, ledger, self._leave)

    def reset_prefix_cache(self) -> None:
        """Drop cached pages that no live request uses."""
        self._kv.reset_prefix_cache()

    def drop_offloaded(self) -> None:
        """Drop pages in host memory."""
        self._offload.drop()

    def metrics(self) -> EngineMetrics:
        """Gauges of now and counters since start."""
        parts = (self._running, self._waiting, self._kv, self._admission, self._offload)
        return take_metrics(*parts, num_preemptions=self._num_preemptions)

    def close(self) -> None:
        """Release the model and its memory, once no page is being copied."""
        self._offload.close()
        self._kv.close()
        self._runner.close()

    def _plan(self) -> StepPlan:
        """Every decoding row, with pages for its token; then chunks of prompts."""
        num_preemptions = self._num_preemptions
        rows = decode_rows(self._running, self._kv, self._preempt, self._offload.reclaim)
        prefilling = [sequence for sequence in self._running if sequence.prefills]
        if self._num_preemptions == num_preemptions:
            started = self._admission.start_all(self._waiting, self._running, self._slots)
            prefilling += self._offload.begin(started)
            prefilling.sort(key=lambda sequence: sequence.rank)
        match_late(prefilling, self._budget.tokens(prefilling, rows), self._kv)
        chunks = plan_chunks(prefilling, self._budget.tokens(prefilling, rows), self._kv)
        return StepPlan(rows + chunks, num_decode=len(rows))

    def _preempt(self, sequence: Sequence) -> None:
        self._leave(sequence)
        sequence.preempted()
        self._num_preemptions += 1
        self._waiting.push(sequence)

    def _leave(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._offload.release(sequence)
        self._slots.give_back(sequence.slot)
        self._runner.forget(sequence.request_id)
        sequence.slot = -1
