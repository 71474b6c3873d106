"""What the engine counts, under the names that dashboards for vLLM know."""

from __future__ import annotations

import re

from pegainfer_server.metrics import Exposition, write_engine_metrics

from pegainfer_core.contract import EngineCapabilities, EngineInfo, EngineMetrics

LINE = re.compile(r'^pegainfer:(\w+)\{model_name="m"(?:,reason="(\w+)")?\} (\S+)$')
METRICS = EngineMetrics(
    num_running=2,
    num_waiting=7,
    num_waiting_slots=3,
    num_waiting_kv=4,
    kv_total_pages=100,
    kv_used_pages=25,
    kv_cached_pages=60,
    prefix_query_tokens=900,
    prefix_hit_tokens=640,
    num_preemptions=5,
    num_evicted_pages=11,
    num_dropped_event_batches=6,
    kv_total_snapshots=8,
    kv_held_snapshots=7,
    num_evicted_snapshots=9,
    num_skipped_snapshots=1,
)


def scrape(metrics: EngineMetrics, *, prefix_cache: bool = True) -> dict[str, float]:
    info = EngineInfo(
        family="f",
        backend="numpy",
        vocab_size=10,
        max_model_len=64,
        page_tokens=16,
        num_pages=100,
        max_num_seqs=4,
        capabilities=EngineCapabilities(prefix_cache=prefix_cache),
    )
    out = Exposition({"model_name": "m"})
    write_engine_metrics(out, info, metrics)
    found = {}
    for line in out.encode().decode().splitlines():
        if match := LINE.match(line):
            name, reason, value = match.groups()
            found[f"{name} {reason}" if reason else name] = float(value)
    return found


def test_every_count_has_its_name() -> None:
    expected = {
        "num_requests_running": 2,
        "num_requests_waiting": 7,
        "num_requests_waiting_by_reason slots": 3,
        "num_requests_waiting_by_reason kv": 4,
        "kv_cache_usage_perc": 0.25,
        "kv_cache_used_pages": 25,
        "kv_cache_cached_pages": 60,
        "prefix_cache_queries_total": 900,
        "prefix_cache_hits_total": 640,
        "num_preemptions_total": 5,
        "kv_cache_evictions_total": 11,
        "kv_event_batches_dropped_total": 6,
        "kv_snapshot_slots": 8,
        "kv_snapshots": 7,
        "kv_snapshot_evictions_total": 9,
        "kv_snapshots_skipped_total": 1,
    }
    found = scrape(METRICS)
    assert {name: found.get(name) for name in expected} == expected


def test_what_an_engine_does_not_have_stays_absent() -> None:
    found = scrape(EngineMetrics(kv_total_pages=1), prefix_cache=False)
    assert "num_requests_waiting_by_reason kv" in found
    assert not any("snapshot" in name or "prefix" in name for name in found)
    assert not any(name.startswith("kv_cache") for name in scrape(EngineMetrics()))
