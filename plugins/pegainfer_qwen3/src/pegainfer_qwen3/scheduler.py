"""Qwen3's scheduler: continuous batching with chunked prefill over paged KV.

Composes core's parts for a model whose only state is append-only KV. Knows nothing of weights or
devices: the runner does.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from pegainfer_core.engine import (
    Admission,
    NoAdapters,
    NoOffload,
    Roster,
    StepPipeline,
    StepPlan,
    decode_rows,
    hand_over,
    make_prefill_budget,
    plan_prompts,
    take_metrics,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.contract import EngineMetrics, GenerateRequest, ServePlan
    from pegainfer_core.engine import (
        AdapterTable,
        GrammarDesk,
        KvOffload,
        Ledger,
        ModelRunner,
    )
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
        self._requests = requests = Roster(plan.max_num_seqs, self._offload, runner)
        self._adapters = adapters or NoAdapters()
        self._adapters.watch(lambda: requests)

    def submit(self, request: GenerateRequest, ledger: Ledger) -> None:
        """Queue a request, or reject what can never be served."""
        accepted = self._adapters.accept(request, self._admission)
        self._requests.enter(request.request_id, accepted, ledger)

    def abort(self, request_id: int, ledger: Ledger) -> None:
        """End a request wherever it is; unknown and ended ones are ignored."""
        self._requests.abort(request_id, ledger)

    def has_work(self) -> bool:
        """Whether any request waits or runs, or a step or a copy of pages is under way."""
        return bool(self._requests or self._pipeline or self._offload.busy)

    def step(self, ledger: Ledger) -> None:
        """Launch a step, then take over the results of the one before it.

        What they fill is published at the next step: its hashing would hold back their tokens.
        """
        self._offload.commit(self._requests.running)
        plan = self._plan()
        if plan.rows:
            for row in plan.rows:
                self._admission.announce(row.sequence, ledger)
            self._pipeline.launch(plan)
        elif not self._pipeline:
            self._offload.rest()
        completed = self._pipeline.complete(num_kept=1 if plan.rows else 0)
        hand_over(completed, ledger, self._requests.leave)

    def reset_prefix_cache(self) -> None:
        """Drop cached pages that no live request uses."""
        self._kv.reset_prefix_cache()

    def drop_offloaded(self) -> None:
        """Drop pages in host memory."""
        self._offload.drop()

    def metrics(self) -> EngineMetrics:
        """Gauges of now and counters since start."""
        return take_metrics(self._requests, self._kv, self._admission, self._offload)

    def close(self) -> None:
        """Release the model and its memory, once no page is being copied."""
        self._offload.close()
        self._kv.close()
        self._runner.close()

    def _plan(self) -> StepPlan:
        """Every decoding row, with pages for its token; then chunks of prompts."""
        requests, before = self._requests, self._requests.num_preemptions
        rows = decode_rows(requests.running, self._kv, requests.preempt, self._offload.reclaim)
        prefilling = [sequence for sequence in requests.running if sequence.prefills]
        if requests.num_preemptions == before:
            started = self._admission.start_all(requests.waiting, requests.running, requests.slots)
            prefilling += self._offload.begin(started)
            prefilling.sort(key=lambda sequence: sequence.rank)
        chunks = plan_prompts(prefilling, rows, self._budget, self._kv)
        return StepPlan(rows + chunks, num_decode=len(rows))
