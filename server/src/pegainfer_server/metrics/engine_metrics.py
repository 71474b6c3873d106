"""What the engine says about itself, under vLLM's metric names with our prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_server.metrics.kv_offload_metrics import write_kv_offload

if TYPE_CHECKING:
    from pegainfer_core.contract import EngineInfo, EngineMetrics
    from pegainfer_server.metrics.exposition import Exposition


def write_engine_metrics(out: Exposition, info: EngineInfo, metrics: EngineMetrics) -> None:
    """Add the engine's gauges and counters to a scrape; what it does not have stays absent."""
    out.info("engine_info", "What runs.", {"family": info.family, "backend": info.backend})
    out.gauge("num_requests_running", "Requests in the batch.", metrics.num_running)
    out.gauge("max_requests_running", "Most requests in the batch.", info.max_num_seqs)
    out.gauge("num_requests_waiting", "Requests waiting for room.", metrics.num_waiting)
    out.gauges(
        "num_requests_waiting_by_reason",
        "Requests waiting for a slot of the batch, or for KV pages.",
        "reason",
        {"slots": metrics.num_waiting_slots, "kv": metrics.num_waiting_kv},
    )
    out.counter("prompt_tokens_total", "Prompt tokens scheduled.", metrics.prompt_tokens)
    out.counter("generation_tokens_total", "Tokens generated.", metrics.generation_tokens)
    out.counter("engine_steps_total", "Steps of the engine.", metrics.num_steps)
    if metrics.kv_total_pages:
        _write_kv(out, info, metrics)


def _write_kv(out: Exposition, info: EngineInfo, metrics: EngineMetrics) -> None:
    share = metrics.kv_used_pages / metrics.kv_total_pages
    out.gauge("kv_cache_usage_perc", "Share of KV pages held by requests (1 = all).", share)
    out.gauge("kv_cache_used_pages", "KV pages held by requests.", metrics.kv_used_pages)
    out.gauge("kv_cache_cached_pages", "Reusable KV pages of no request.", metrics.kv_cached_pages)
    out.counter(
        "num_preemptions_total", "Requests whose pages were taken.", metrics.num_preemptions
    )
    out.counter("kv_cache_evictions_total", "Cached pages dropped.", metrics.num_evicted_pages)
    out.counter(
        "kv_event_batches_dropped_total",
        "Steps whose KV events were lost.",
        metrics.num_dropped_event_batches,
    )
    if metrics.kv_total_snapshots:
        _write_snapshots(out, metrics)
    write_kv_offload(out, metrics.kv_offload)
    if info.capabilities.prefix_cache:
        out.counter(
            "prefix_cache_queries_total",
            "Prompt tokens looked up in the prefix cache.",
            metrics.prefix_query_tokens,
        )
        out.counter(
            "prefix_cache_hits_total",
            "Prompt tokens found in the prefix cache.",
            metrics.prefix_hit_tokens,
        )
    out.info(
        "cache_config_info",
        "Shape of the KV pool.",
        {"block_size": str(info.page_tokens), "num_gpu_blocks": str(metrics.kv_total_pages)},
    )


def _write_snapshots(out: Exposition, metrics: EngineMetrics) -> None:
    out.gauge("kv_snapshot_slots", "Slots for snapshots of state.", metrics.kv_total_snapshots)
    out.gauge("kv_snapshots", "Snapshots that can be used again.", metrics.kv_held_snapshots)
    out.counter("kv_snapshot_evictions_total", "Snapshots dropped.", metrics.num_evicted_snapshots)
    out.counter(
        "kv_snapshots_skipped_total", "Snapshots without a slot.", metrics.num_skipped_snapshots
    )
