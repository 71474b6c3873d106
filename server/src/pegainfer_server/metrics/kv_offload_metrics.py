"""What KV offload does, tier by tier, under names of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.contract import KvOffloadMetrics, KvTierMetrics
    from pegainfer_server.metrics.exposition import Exposition


def write_kv_offload(out: Exposition, offload: KvOffloadMetrics) -> None:
    """Add gauges and counters of KV offload; nothing without it."""
    if not offload.tiers:
        return
    out.gauge("kv_offload_restoring", "Requests that wait for pages.", offload.num_restoring)
    out.gauge("kv_offload_held_pages", "Device pages only copies use.", offload.num_held_pages)
    for name, text, value in (
        ("restores", "Prefixes brought back.", offload.num_restores),
        ("restored_tokens", "Prompt tokens brought back.", offload.restored_tokens),
        ("restore_failures", "Restores that brought too little.", offload.num_restore_failures),
        ("skipped_restores", "Prefixes quicker computed.", offload.num_skipped_restores),
    ):
        out.counter(f"kv_offload_{name}_total", text, value)
    for name, text, get in _GAUGES:
        out.gauges(f"kv_offload_{name}", text, "tier", _by_tier(offload, get))
    for name, text, get in _COUNTERS:
        out.counters(f"kv_offload_{name}_total", text, "tier", _by_tier(offload, get))


def _by_tier(offload: KvOffloadMetrics, get: Callable[[KvTierMetrics], float]) -> dict[str, float]:
    return {tier.name: get(tier) for tier in offload.tiers}


_GAUGES: tuple[tuple[str, str, Callable[[KvTierMetrics], float]], ...] = (
    ("used_bytes", "Bytes of the pages held.", lambda tier: tier.used_bytes),
    ("capacity_bytes", "Most bytes to hold (0: no limit).", lambda tier: tier.capacity_bytes or 0),
    ("records", "Pages held.", lambda tier: tier.num_records),
    ("cut_off", "Whether the tier is cut off.", lambda tier: int(tier.is_cut_off)),
    ("lent_bytes", "Buffers of calls given up.", lambda tier: tier.held_bytes),
)
_COUNTERS: tuple[tuple[str, str, Callable[[KvTierMetrics], float]], ...] = (
    ("queries", "Prompt tokens looked up.", lambda tier: tier.query_tokens),
    ("hits", "Prompt tokens restored from here.", lambda tier: tier.hit_tokens),
    ("saved_bytes", "Bytes taken.", lambda tier: tier.saved_bytes),
    ("save_seconds", "Time of saves.", lambda tier: tier.save_s),
    ("loaded_bytes", "Bytes given.", lambda tier: tier.loaded_bytes),
    ("load_seconds", "Time of loads.", lambda tier: tier.load_s),
    ("unsaved_pages", "Pages there was no room or time for.", lambda tier: tier.num_unsaved),
    ("evictions", "Pages given up for others.", lambda tier: tier.num_evicted),
    ("corrupt_pages", "Damaged pages, not used.", lambda tier: tier.num_corrupt),
    ("failures", "Calls that failed.", lambda tier: tier.num_failures),
    ("timeouts", "Calls that took too long.", lambda tier: tier.num_timeouts),
    ("cut_offs", "Times it was cut off.", lambda tier: tier.num_cut_off),
)
