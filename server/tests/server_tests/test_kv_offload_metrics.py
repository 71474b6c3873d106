"""KV offload's counts, tier by tier."""

from __future__ import annotations

import msgspec
from pegainfer_server.metrics.exposition import Exposition
from pegainfer_server.metrics.kv_offload_metrics import write_kv_offload

from pegainfer_core.contract import KvOffloadMetrics, KvTierMetrics


def scrape(metrics: KvOffloadMetrics) -> dict[str, float]:
    out = Exposition({"model_name": "m"})
    write_kv_offload(out, metrics)
    lines = [line for line in out.encode().decode().splitlines() if not line.startswith("#")]
    return {
        name.replace('model_name="m"', "").replace("pegainfer:kv_offload_", ""): float(value)
        for name, _, value in (line.rpartition(" ") for line in lines if line)
    }


def numbered(name: str, first: int) -> KvTierMetrics:
    """Every field another number."""
    fields = [field.name for field in msgspec.structs.fields(KvTierMetrics)][1:]
    values = {field: first + i for i, field in enumerate(fields)}
    return KvTierMetrics(**{"name": name, **values, "is_cut_off": True})  # type: ignore[arg-type]


def test_nothing_without_offload() -> None:
    assert scrape(KvOffloadMetrics()) == {}


def test_every_field_of_every_tier_is_shown() -> None:
    tiers = [numbered("host", 100), numbered("disk", 200)]
    found = scrape(
        KvOffloadMetrics(
            num_restores=1,
            restored_tokens=2,
            num_restore_failures=3,
            num_skipped_restores=4,
            num_restoring=5,
            num_held_pages=6,
            tiers=tiers,
        )
    )
    assert {name: value for name, value in found.items() if "tier=" not in name} == {
        "restores_total{}": 1,
        "restored_tokens_total{}": 2,
        "restore_failures_total{}": 3,
        "skipped_restores_total{}": 4,
        "restoring{}": 5,
        "held_pages{}": 6,
    }
    for tier in tiers:
        mine = [v for name, v in found.items() if name.endswith(f'{{,tier="{tier.name}"}}')]
        expected = [value for key, value in msgspec.structs.asdict(tier).items() if key != "name"]
        assert sorted(mine) == sorted(map(float, expected))
    assert found['hits_total{,tier="disk"}'] == tiers[1].hit_tokens
    assert found['cut_off{,tier="host"}'] == 1
