"""The Grafana dashboard asks for nothing that `/metrics` does not have, with labels it has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pegainfer_server.metrics.exposition import Exposition
from pegainfer_server.metrics.kv_offload_metrics import write_kv_offload

from pegainfer_core.contract import KvOffloadMetrics, KvTierMetrics

from .served import Server

DASHBOARD = Path(__file__).parents[3] / "deploy/grafana/pegainfer.json"
QUERY = re.compile(r"pegainfer:(\w+)(?:\{([^}]*)\})?")
LABEL = re.compile(r'(\w+)(?:=~|=)"')
SAMPLE = re.compile(r"^pegainfer:(\w+)\{([^}]*)\} ", re.MULTILINE)


def exposed(server: Server) -> dict[str, set[str]]:
    """Sample names of a scrape to their labels; KV offload's, which no engine here has, as well."""
    server.complete("@", max_tokens=1)
    server.get("/nothing")
    out = Exposition({"model_name": "m", "engine": "0"})
    write_kv_offload(out, KvOffloadMetrics(tiers=[KvTierMetrics(name="host")]))
    text = server.get("/metrics").text + out.encode().decode()
    found: dict[str, set[str]] = {}
    for name, labels in SAMPLE.findall(text):
        found.setdefault(name, set()).update(LABEL.findall(labels))
    return found


def panels() -> list[dict[str, Any]]:
    dashboard = json.loads(DASHBOARD.read_text())
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def test_every_query_finds_something(server: Server) -> None:
    found = exposed(server)
    expressions = [target["expr"] for panel in panels() for target in panel["targets"]]
    assert len(expressions) > 30
    for expression in expressions:
        names = QUERY.findall(expression)
        assert names, expression
        grouped = set(re.findall(r"by \((\w+)\)", expression))
        for name, matchers in names:
            assert name in found, f"{name} is not exposed"
            labels = found[name]
            assert set(LABEL.findall(matchers)) <= labels
            assert grouped <= labels, expression
            counter = re.search(rf"rate\(pegainfer:{name}\b", expression) is not None
            assert counter == name.endswith(("_total", "_bucket", "_sum", "_count"))
    variables = {v["name"]: v for v in json.loads(DASHBOARD.read_text())["templating"]["list"]}
    (name,) = QUERY.findall(variables["model"]["definition"])
    assert "model_name" in found[name[0]]


def test_panels_do_not_overlap_and_name_their_series() -> None:
    places: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        box = panel["gridPos"]
        cells = {(box["x"] + x, box["y"] + y) for x in range(box["w"]) for y in range(box["h"])}
        assert not cells & places, panel["title"]
        assert box["x"] + box["w"] <= 24
        places |= cells
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}"
        legends = [target["legendFormat"] for target in panel["targets"]]
        assert len(set(legends)) == len(legends)
        assert all(legends)


def test_what_people_watch_is_shown() -> None:
    asked = {
        name
        for panel in panels()
        for target in panel["targets"]
        for name, _ in QUERY.findall(target["expr"])
    }
    assert {
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
        "generation_tokens_total",
        "prompt_tokens_total",
        "prefix_cache_hits_total",
        "num_preemptions_total",
        "request_success_total",
        "time_to_first_token_seconds_bucket",
        "inter_token_latency_seconds_bucket",
        "e2e_request_latency_seconds_bucket",
        "kv_offload_used_bytes",
    } <= asked
