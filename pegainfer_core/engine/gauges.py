"""Puts a scheduler's metrics together from its parts, the same way for every family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.contract import EngineMetrics

if TYPE_CHECKING:
    from pegainfer_core.engine.admission import Admission
    from pegainfer_core.engine.kv_offload import KvOffload
    from pegainfer_core.engine.roster import Roster
    from pegainfer_core.kv import KvManager


def take_metrics(
    requests: Roster, kv: KvManager, admission: Admission, offload: KvOffload
) -> EngineMetrics:
    """Gauges of now and counters since start; the driver adds those of ended requests."""
    pool = kv.pool
    snapshots = kv.snapshots.pools
    num_running, num_waiting = len(requests.running), len(requests.waiting)
    # Who waits while a slot is free waits for pages.
    num_waiting_slots = num_waiting if num_running >= admission.max_num_seqs else 0
    return EngineMetrics(
        num_running=num_running,
        num_waiting=num_waiting,
        num_waiting_slots=num_waiting_slots,
        num_waiting_kv=num_waiting - num_waiting_slots,
        kv_total_pages=pool.num_total,
        kv_used_pages=pool.num_used,
        kv_cached_pages=pool.num_cached,
        prefix_query_tokens=admission.prefix_query_tokens,
        prefix_hit_tokens=admission.prefix_hit_tokens,
        num_preemptions=requests.num_preemptions,
        num_evicted_pages=pool.num_evicted,
        kv_total_snapshots=sum(group.num_total for group in snapshots),
        kv_held_snapshots=sum(group.num_held for group in snapshots),
        num_evicted_snapshots=sum(group.num_evicted for group in snapshots),
        num_skipped_snapshots=sum(group.num_skipped for group in snapshots),
        num_dropped_event_batches=kv.num_dropped_event_batches,
        kv_offload=offload.metrics(),
    )
