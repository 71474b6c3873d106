"""Errors that belong to no field: paths, methods, types, sizes, keys, origins, hosts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import httpx
import pytest

from .raw_http import RawConnection
from .scripted_engine import Script
from .served import Server, serving

COMPLETIONS = "/v1/completions"


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    assert list(error) == ["message", "type", "param", "code"]
    return error


def test_unknown_paths_and_methods(server: Server) -> None:
    assert error_of(server.get("/v1/nothing"), 404)["type"] == "invalid_request_error"
    assert error_of(server.get(COMPLETIONS), 405)["type"] == "invalid_request_error"
    assert server.get(COMPLETIONS).headers["allow"] == "OPTIONS, POST"
    assert server.post("/v1/models/m", {}).headers["allow"] == "GET, OPTIONS"
    assert error_of(server.post("/health", {}), 405)["code"] == "method_not_allowed"
    assert error_of(server.post("/reset_prefix_cache", {}), 404)["code"] == "unknown_path"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded"])
def test_other_content_types_are_415(server: Server, kind: str) -> None:
    response = server.post_raw(COMPLETIONS, '{"prompt":"a"}', kind)
    assert error_of(response, 415)["code"] == "unsupported_media_type"


@pytest.mark.parametrize("kind", [None, "application/json; charset=utf-8", "Application/JSON"])
def test_json_and_no_content_type_are_fine(server: Server, kind: str | None) -> None:
    assert server.post_raw(COMPLETIONS, '{"prompt":"a"}', kind).status_code == 200


def test_large_bodies_are_413(folder: Path) -> None:
    with serving(folder, max_body_bytes=1000) as server:
        assert server.post(COMPLETIONS, {"prompt": "a" * 900}).status_code == 200
        error = error_of(server.post(COMPLETIONS, {"prompt": "a" * 2000}), 413)
        assert "1000 bytes (--max-body-bytes)" in error["message"]
        with RawConnection(server.address) as connection:
            chunked = {"Transfer-Encoding": "chunked", "Content-Length": ""}
            body = b"400\r\n" + b" " * 1024 + b"\r\n0\r\n\r\n"
            connection.send("POST", COMPLETIONS, body, chunked)
            assert connection.read_head()[0] == 413


def test_request_ids_come_back(server: Server) -> None:
    response = server.post(COMPLETIONS, {"prompt": "a"}, headers={"x-request-id": "abc-1"})
    assert response.headers["x-request-id"] == "abc-1"
    assert response.json()["id"] == "cmpl-abc-1"
    both = {"prompt": "a", "request_id": "from-body"}
    assert server.post(COMPLETIONS, both).headers["x-request-id"] == "from-body"
    wins = server.post(COMPLETIONS, both, headers={"x-request-id": "from-header"})
    assert wins.headers["x-request-id"] == "from-header"
    assert len(server.get("/health").headers["x-request-id"]) == 32
    assert server.get("/nothing", headers={"x-request-id": "e"}).headers["x-request-id"] == "e"
    response = server.get("/health", headers={"x-request-id": "a b"})
    assert error_of(response, 400)["param"] == "X-Request-Id"
    for refused in (response, server.get("/nothing"), server.get("/v1/models/x")):
        assert refused.json()["request_id"] == refused.headers["x-request-id"]


def test_api_keys_guard_everything_but_health(folder: Path) -> None:
    digests = tuple(hashlib.sha256(key).digest() for key in (b"one", b"two"))
    with serving(folder, key_digests=digests) as server:
        for path in ("/v1/models", "/metrics", "/version", "/schema", "/nothing", "/v1/plugins"):
            response = server.get(path)
            error = error_of(response, 401)
            assert (error["type"], error["code"]) == ("authentication_error", "invalid_api_key")
            assert response.headers["www-authenticate"] == "Bearer"
        assert error_of(server.post(COMPLETIONS, {"prompt": "a"}), 401)
        for wrong in ("Bearer three", "Bearer", "Basic one", "one"):
            assert server.get("/v1/models", headers={"authorization": wrong}).status_code == 401
        for key in ("one", "two"):
            headers = {"authorization": f"Bearer {key}"}
            assert server.get("/v1/models", headers=headers).status_code == 200
        assert server.get("/health").status_code == 200
        assert server.get("/v1/health").status_code == 200
        assert server.client.options("/v1/models").status_code == 204


def test_foreign_pages_may_not_call(server: Server) -> None:
    evil = {"origin": "http://evil.example"}
    assert error_of(server.post(COMPLETIONS, {"prompt": "a"}, headers=evil), 403)
    assert error_of(server.get("/v1/models", headers={"origin": "null"}), 403)
    preflight = {**evil, "access-control-request-method": "POST"}
    assert server.client.options(COMPLETIONS, headers=preflight).status_code == 403
    same = server.get("/v1/models", headers={"origin": server.url})
    assert same.status_code == 200
    assert "access-control-allow-origin" not in same.headers


def test_allowed_pages_may_call(folder: Path) -> None:
    origins = frozenset({"https://ui.example"})
    with serving(folder, cors_origins=origins) as server:
        headers = {"origin": "https://ui.example"}
        response = server.get("/v1/models", headers=headers)
        assert response.headers["access-control-allow-origin"] == "https://ui.example"
        preflight = server.client.options(
            COMPLETIONS, headers={**headers, "access-control-request-method": "POST"}
        )
        assert preflight.status_code == 200
        assert "content-type" in preflight.headers["access-control-allow-headers"]
        assert server.get("/v1/models", headers={"origin": "https://x.example"}).status_code == 403


def test_only_known_hosts_are_answered_on_loopback(server: Server) -> None:
    port = server.address[1]
    for host in (f"localhost:{port}", "127.0.0.1", f"[::1]:{port}", "LOCALHOST"):
        assert server.get("/health", headers={"host": host}).status_code == 200
    for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example"):
        assert error_of(server.get("/health", headers={"host": host}), 403)


def test_every_host_is_answered_elsewhere(folder: Path) -> None:
    with serving(folder, host="0.0.0.0") as server:
        assert server.get("/health", headers={"host": "api.example"}).status_code == 200
    with serving(folder, allowed_hosts=frozenset({"api.example"})) as server:
        assert server.get("/health", headers={"host": "api.example:8000"}).status_code == 200
        assert server.get("/health", headers={"host": "b.example"}).status_code == 403


def test_internal_faults_say_where_to_look(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode() -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(server.state, "serving", explode)
    error = error_of(server.get("/v1/models", headers={"x-request-id": "mine"}), 500)
    assert (error["type"], error["code"]) == ("server_error", "internal_error")
    assert "secret" not in error["message"]
    error_id = error["message"].split()[2].rstrip(";")
    logged = [record for record in caplog.records if error_id in record.getMessage()]
    assert "id=mine" in logged[0].getMessage()
    assert logged[0].exc_info is not None


def test_a_full_queue_is_429(folder: Path) -> None:
    with serving(folder, Script(max_num_seqs=2, hold=True), max_queue=1) as server:
        connections = [RawConnection(server.address) for _ in range(3)]
        for connection in connections:
            connection.post(COMPLETIONS, {"prompt": "a"})
        server.wait_for(lambda: server.state.num_open == 3)
        response = server.post(COMPLETIONS, {"prompt": "a"})
        error = error_of(response, 429)
        assert (error["type"], error["code"]) == ("overloaded", "queue_full")
        assert int(response.headers["retry-after"]) >= 1
        assert server.metric("request_rejected_total", code="queue_full") == 1
        server.script.hold = False
        for connection in connections:
            assert connection.read_head()[0] == 200
            connection.sock.close()
        assert server.post(COMPLETIONS, {"prompt": "a"}).status_code == 200
