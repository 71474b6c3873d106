"""Puts a scheduler's metrics together from its parts, the same way for every family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.contract import EngineMetrics

if TYPE_CHECKING:
    from pegainfer_core.engine.admission import Admission
    from pegainfer_core.engine.kv_offload import KvOffload
    from pegainfer_core.engine.queue import WaitingQueue
    from pegainfer_core.engine.running import RunningSet
    from pegainfer_core.kv import KvManager


def take_metrics(
    running: RunningSet,
    waiting: WaitingQueue,
    kv: KvManager,
    admission: Admission,
    offload: KvOffload,
    *,
    num_preemptions: int,
) -> EngineMetrics:
    """Gauges of now and counters since start; the driver adds those of ended requests."""
    pool = kv.pool
    return EngineMetrics(
        num_running=len(running),
        num_waiting=len(waiting),
        kv_total_pages=pool.num_total,
        kv_used_pages=pool.num_used,
        kv_cached_pages=pool.num_cached,
        prefix_query_tokens=admission.prefix_query_tokens,
        prefix_hit_tokens=admission.prefix_hit_tokens,
        num_preemptions=num_preemptions,
        num_evicted_pages=pool.num_evicted,
        kv_offload=offload.metrics(),
    )
