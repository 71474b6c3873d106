"""Qwen3.5's scheduler: continuous batching with chunked prefill over paged KV and states in slots.

Composes core's parts for a model whose rows carry a state that no page holds. Knows nothing of
weights or devices: the runner does.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from pegainfer_core.engine import (
    Admission,
    NoOffload,
    RunningSet,
    Sequence,
    SlotPool,
    StepPipeline,
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
    from pegainfer_core.engine import GrammarDesk, KvOffload, Ledger, ModelRunner, StepPlan
    from pegainfer_core.kv import KvManager
    from pegainfer_qwen35.snapshots import SnapshotPlanner


class Qwen35Scheduler:
    """Implements `pegainfer_core.engine.Scheduler`.

    A request's slot is its row of all tables, its recurrent state's among them, from admission to
    its end or preemption; so its state never moves.
    """

    def __init__(
        self,
        runner: ModelRunner,
        kv: KvManager,
        plan: ServePlan,
        snapshots: SnapshotPlanner,
        kv_reserve: Literal["on-demand", "worst-case"] = "on-demand",
        *,
        offload: KvOffload | None = None,
        grammars: GrammarDesk | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start idle, with the runner's KV pages; the runner is closed with the scheduler."""
        self._runner = runner
        self._kv = kv
        self._snapshots = snapshots
        self._offload = offload or NoOffload(kv)
        self._budget = make_prefill_budget(plan)
        self._pipeline = StepPipeline(runner, self._offload.watch(self._budget.observe), clock)
        self._admission = Admission(plan, kv, kv_reserve, grammars=grammars)
        self._waiting, self._running = WaitingQueue(), RunningSet()
        self._slots = SlotPool(plan.max_num_seqs)
        self._num_preemptions = 0

    def submit(self, request: GenerateRequest, ledger: Ledger) -> None:
        """Queue a request, or reject what can never be served."""
        accepted = self._admission.accept(request)
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
        """Launch a step, then take over the results of the one before it."""
        # Pages and states of the steps read so far are published first: this plan may use them.
        self._offload.commit(self._running)
        plan = self._plan()
        if plan.rows:
            for row in plan.rows:
                self._admission.announce(row.sequence, ledger)
            self._pipeline.launch(plan)
            self._snapshots.launched(plan)
        elif not self._pipeline:
            self._offload.rest()
        completed = self._pipeline.complete(num_kept=1 if plan.rows else 0)
        hand_over(completed, ledger, self._leave)

    def reset_prefix_cache(self) -> None:
        """Drop cached pages that no live request uses, and with them their snapshots."""
        self._kv.reset_prefix_cache()

    def drop_offloaded(self) -> None:
        """Drop pages and snapshots in host memory."""
        self._offload.drop()

    def metrics(self) -> EngineMetrics:
        """Gauges of now and counters since start."""
        parts = (self._running, self._waiting, self._kv, self._admission, self._offload)
        return take_metrics(*parts, num_preemptions=self._num_preemptions)

    def close(self) -> None:
        """Release the model and its memory, once nothing is being copied."""
        self._offload.close()
        self._kv.close()
        self._runner.close()

    def _plan(self) -> StepPlan:
        """Every decoding row, with a page for its token; then chunks of prompts; then states."""
        before = self._num_preemptions
        rows = decode_rows(self._running, self._kv, self._preempt, self._offload.reclaim)
        if self._num_preemptions == before:
            # Otherwise there is no room, and what was just taken would be given to another.
            started = self._admission.start_all(self._waiting, self._running, self._slots)
            self._offload.begin(started)
        prefilling = [sequence for sequence in self._running if sequence.prefills]
        match_late(prefilling, self._budget.tokens(prefilling, rows), self._kv)
        chunks = plan_chunks(prefilling, self._budget.tokens(prefilling, rows), self._kv)
        return self._snapshots.complete(rows + chunks, len(rows))

    def _preempt(self, sequence: Sequence) -> None:
        """Take everything from a sequence and queue it again; what its prefix left stays cached."""
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
