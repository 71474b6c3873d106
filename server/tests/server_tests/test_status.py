"""`/health`, `/metrics`, `/v1/models`, `/tokenize` and the other routes about the server."""

from __future__ import annotations

import re
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pegainfer_server.listener import bind

from pegainfer_core import __version__
from pegainfer_core.contract import EngineHealth, HealthState

from .scripted_engine import chain
from .served import Server, serving

REFUSED = ("400", "404")
TEXT = {"content-type": "text/plain"}
SAMPLE = re.compile(r"^pegainfer:([a-z0-9_]+)(\{[^}]*\}) (\S+)$")


def test_health_says_what_state_the_server_is_in(folder: Path) -> None:
    with serving(folder, load=False) as server:
        response = server.get("/health")
        assert response.status_code == 503
        assert response.json()["status"] == "loading"
        assert response.json()["error"]["code"] == "loading"
        refused = server.post("/v1/completions", {"prompt": "a"})
        assert refused.status_code == 503
        assert refused.json()["error"]["type"] == "unavailable_error"
        assert int(refused.headers["retry-after"]) > 0
        assert server.get("/version").json() == {"version": __version__}
        assert "num_requests_running" not in server.get("/metrics").text
        assert server.get("/v1/models").status_code == 503


def test_health_is_ok_when_ready_and_503_when_draining(server: Server) -> None:
    for path in ("/health", "/v1/health"):
        response = server.get(path)
        assert (response.status_code, response.json()) == (200, {"status": "ok"})
    server.state.draining = True
    try:
        assert server.get("/health").json()["status"] == "draining"
        refused = server.post("/v1/completions", {"prompt": "a"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
    finally:
        server.state.draining = False


def test_a_stalled_engine_is_not_healthy(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    model = server.state.model
    assert model is not None
    silence = EngineHealth(HealthState.STALLED, "no sign of life for 9.0 s")
    monkeypatch.setattr(model.client, "health", lambda: silence)
    response = server.get("/health")
    assert (response.status_code, response.json()["status"]) == (503, "stalled")
    assert "9.0 s" in response.json()["error"]["message"]
    assert server.post("/v1/completions", {"prompt": "a"}).status_code == 503


def test_health_can_be_asked_without_a_body(server: Server) -> None:
    response = server.client.head("/health")
    assert (response.status_code, response.content) == (200, b"")


def test_tokens_do_not_wait_for_acknowledgements() -> None:
    with bind("127.0.0.1", 0) as sock:
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_models_are_listed_and_shown(folder: Path) -> None:
    names = ("m", "org/m")
    with serving(folder, model_names=names, sampling_flags={"temperature": 0.5}) as server:
        listed = server.get("/v1/models").json()
        assert listed["object"] == "list"
        assert [card["id"] for card in listed["data"]] == list(names)
        card = server.get("/v1/models/org/m").json()
        assert card == listed["data"][1]
        assert card["object"] == "model"
        assert card["owned_by"] == "pegainfer"
        assert card["max_model_len"] == 4096
        assert card["default_sampling_params"] == {"temperature": 0.5}
        assert server.complete("a", model="org/m")["model"] == "org/m"
        assert server.complete("a")["model"] == "m"
        assert server.script.requests[-1].params.temperature == 0.5
        server.complete("a", temperature=0.25)
        assert server.script.requests[-1].params.temperature == 0.25


def test_metrics_are_prometheus_text(server: Server) -> None:
    server.script.table = chain("@", "a", "b", 256)
    before = server.metric("request_generation_tokens_sum")
    server.complete("@")
    server.complete("@", max_tokens=1)
    text = server.get("/metrics")
    assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
    families: dict[str, str] = {}
    for line in text.text.splitlines():
        if line.startswith("# TYPE pegainfer:"):
            _, _, name, kind = line.split()
            assert name not in families
            families[name.removeprefix("pegainfer:")] = kind
        elif not line.startswith("# HELP"):
            match = SAMPLE.match(line)
            assert match, line
            float(match[3])
            base = re.sub(r"_(bucket|sum|count)$", "", match[1])
            assert match[1] in families or families[base] == "histogram"
            assert 'model_name="m"' in match[2]
    assert families["time_to_first_token_seconds"] == "histogram"
    assert families["num_requests_running"] == "gauge"
    assert families["prompt_tokens_total"] == "counter"
    assert server.metric("request_generation_tokens_sum") == before + 4
    assert server.metric("time_to_first_token_seconds_bucket", le="+Inf") >= 2
    assert server.metric("inter_token_latency_seconds_count") >= 1


def test_metrics_tell_of_refusals_and_processes(server: Server) -> None:
    before = {status: server.metric("http_responses_total", status=status) for status in REFUSED}
    assert server.get("/nothing").status_code == 404
    assert server.post("/v1/completions", {"prompt": "a", "seed": "x"}).status_code == 400
    for status in REFUSED:
        assert server.metric("http_responses_total", status=status) == before[status] + 1
    assert server.metric("version_info", version=__version__) == 1
    assert server.metric("engine_info", family="script", backend="script") == 1
    assert server.metric("max_requests_running") == 256
    assert server.metric("process_resident_memory_bytes", process="server") > 1 << 20
    assert 0 <= time.time() - server.metric("process_start_time_seconds") < 3600


def test_every_refusal_is_counted_by_its_code(folder: Path) -> None:
    refused: list[tuple[str, str, dict[str, Any]]] = [
        ("json_parse_error", "/v1/completions", {"content": b"{"}),
        ("json_parse_error", "/v1/chat/completions", {"content": b""}),
        ("invalid_value", "/v1/completions", {"json": {"prompt": "a", "n": 0}}),  # the server's
        (
            "invalid_value",
            "/v1/completions",
            {"json": {"prompt": "a", "top_k": -2}},
        ),  # the engine's
        ("unsupported_parameter", "/v1/completions", {"json": {"prompt": "a", "suffix": "b"}}),
        ("context_length_exceeded", "/v1/completions", {"json": {"prompt": "a" * 5000}}),
        ("model_not_found", "/v1/completions", {"json": {"prompt": "a", "model": "x"}}),
        ("unsupported_media_type", "/v1/completions", {"content": b"a", "headers": TEXT}),
        ("invalid_value", "/v1/messages", {"json": {"messages": [], "max_tokens": 1}}),
        ("unknown_path", "/v1/nothing", {"json": {}}),
    ]
    with serving(folder) as server:
        assert server.metric("request_rejected_total", code="queue_full") == 0
        for _, path, request in refused:
            assert server.client.post(path, **request).status_code >= 400
        server.get("/v1/models/gpt-0")  # asks for no work
        server.complete("@", max_tokens=1)
        counts = Counter(code for code, _, _ in refused)
        for code, count in counts.items():
            assert server.metric("request_rejected_total", code=code) == count
        total = sum(server.metric("request_rejected_total", code=code) for code in counts)
        assert total == len(refused)


def test_records_tell_the_whole_story(server: Server) -> None:
    server.script.table = chain("@", "a", 256)
    server.script.cached_tokens = 1
    server.events("/v1/completions", prompt="@", request_id="told")
    server.wait_for(lambda: len(server.records) == 1)
    record = server.records[0]
    assert (record.external_id, record.model, record.family) == ("told", "m", "script")
    assert (record.endpoint, record.stream) == ("/v1/completions", True)
    assert record.finish_reason == "stop"
    assert (record.prompt_tokens, record.cached_tokens, record.completion_tokens) == (1, 1, 2)
    assert record.scheduled_s is not None
    assert record.first_token_s is not None
    assert 0 <= record.scheduled_s <= record.first_token_s <= record.finished_s
    server.post("/v1/completions", {"prompt": "@", "temperature": -1})
    server.wait_for(lambda: len(server.records) == 2)
    assert server.records[1].finish_reason == "rejected"
    assert "temperature" in server.records[1].detail


def test_tokenize_shows_what_the_model_reads(server: Server) -> None:
    answer = server.post("/tokenize", {"prompt": "Hi<eos>", "return_token_strs": True}).json()
    assert answer["tokens"] == [72, 105, 256]
    assert answer["token_strs"] == ["H", "i", "<eos>"]
    assert (answer["count"], answer["max_model_len"]) == (3, 4096)
    messages = [{"role": "user", "content": "x"}]
    answer = server.post("/tokenize", {"messages": messages}).json()
    assert bytes(answer["tokens"]).decode() == "[user]x>"
    assert answer["token_strs"] is None
    error = server.post("/tokenize", {"prompt": "a", "messages": messages})
    assert error.status_code == 400
    assert server.post("/tokenize", {}).status_code == 400
    assert server.post("/tokenize", {"prompt": ""}).json()["tokens"] == []


def test_detokenize_shows_every_token(server: Server) -> None:
    answer = server.post("/detokenize", {"tokens": [72, 105, 256, 900]})
    assert answer.json() == {"prompt": "Hi<eos>"}
    assert server.post("/detokenize", {"tokens": [-1]}).status_code == 400
    assert server.post("/detokenize", {"tokens": "x"}).status_code == 400


def test_the_prefix_cache_can_be_reset_in_development(folder: Path) -> None:
    with serving(folder, dev=True) as server:
        assert server.client.post("/reset_prefix_cache").status_code == 200
        # The type of no body, which aiohttp's client names.
        odd = {"content-type": "application/octet-stream"}
        assert server.client.post("/reset_prefix_cache", headers=odd).status_code == 200
        assert server.client.post("/reset_prefix_cache?tier=all").status_code == 200
        server.wait_for(lambda: server.script.resets == 3)
        assert server.client.post("/reset_prefix_cache?tier=tape").status_code == 400


def test_the_documentation_runs_nothing_from_elsewhere(server: Server) -> None:
    assert server.get("/schema").json() == server.get("/schema/openapi.json").json()
    for path in ("/schema/swagger", "/schema/redoc", "/schema/nothing"):
        response = server.get(path)
        assert response.status_code == 404
        assert "<script" not in response.text


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize"])
def test_bodies_are_documented(server: Server, path: str) -> None:
    schema = server.get("/schema/openapi.json").json()
    content = schema["paths"][path]["post"]["requestBody"]["content"]
    assert "model" in content["application/json"]["schema"]["properties"]


def test_plugins_are_listed(server: Server) -> None:
    assert server.get("/v1/plugins").json() == {"plugins": []}
