"""HTTPS: files are tried before loading; a server over it, with all other switches on as well."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import httpx
import pytest
from pegainfer_server.options import ServeOptions
from pegainfer_server.settings import ServerSettings

from pegainfer_core.plugin import CommandFault

from .collector import collecting
from .served import decode_events
from .served_process import echo_model, start, wait_for

PEM = Path(__file__).parent / "tls"
CERT, KEY, ENCRYPTED = (str(PEM / f"{name}.pem") for name in ("cert", "key", "encrypted_key"))


def resolve(**flags: str) -> ServerSettings:
    return ServerSettings.resolve(ServeOptions(**flags), "/m")


def test_files_are_tried_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve().tls is None
    tls = resolve(ssl_certfile=CERT, ssl_keyfile=KEY, ssl_ca_certs=CERT).tls
    assert tls is not None
    assert tls.client_certificates is ssl.CERT_REQUIRED
    both = tmp_path / "both.pem"
    both.write_text(Path(CERT).read_text() + Path(KEY).read_text())
    assert resolve(ssl_certfile=str(both)).tls is not None
    with pytest.raises(CommandFault, match="PEGAINFER_SSL_KEYFILE_PASSWORD decrypts"):
        resolve(ssl_certfile=CERT, ssl_keyfile=ENCRYPTED)
    monkeypatch.setenv("PEGAINFER_SSL_KEYFILE_PASSWORD", "secret")
    encrypted = resolve(ssl_certfile=CERT, ssl_keyfile=ENCRYPTED).tls
    assert encrypted is not None
    assert encrypted.password == "secret"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"ssl_certfile": "/nowhere"}, "--ssl-certfile /nowhere cannot be used: No such file"),
        ({"ssl_certfile": CERT}, "must be PEM and match"),
        ({"ssl_certfile": CERT, "ssl_keyfile": CERT}, f"--ssl-keyfile {CERT}"),
        ({"ssl_certfile": CERT, "ssl_keyfile": KEY, "ssl_ca_certs": "/no"}, "--ssl-ca-certs /no"),
        ({"ssl_keyfile": KEY}, "--ssl-keyfile needs --ssl-certfile"),
        ({"ssl_ca_certs": CERT}, "--ssl-ca-certs needs --ssl-certfile"),
    ],
)
def test_unusable_files_are_named(flags: dict[str, str], words: str) -> None:
    with pytest.raises(CommandFault, match=words):
        resolve(**flags)


def test_a_server_over_https_that_logs_json_and_sends_traces(folder: Path) -> None:
    """Keys and client certificates as well: starting a process takes a second."""
    with collecting() as collector:
        lines = serve_over_https(folder, "--otlp-endpoint", collector.url)
    check_log(lines)
    spans = collector.spans()
    assert {"POST", "queue", "prefill", "decode"} < set(spans)
    assert set(spans.values()) == {"mine"}


def serve_over_https(folder: Path, *more: str) -> list[str]:
    flags = ["--ssl-certfile", CERT, "--ssl-keyfile", KEY, "--ssl-ca-certs", CERT]
    flags += ["--api-key", "k", "--log-format", "json", "--access-log"]
    environ = {"OTEL_SERVICE_NAME": "mine", "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}
    server = start(echo_model(folder), *flags, *more, environ=environ)
    trusting = ssl.create_default_context(cafile=CERT)
    trusting.load_cert_chain(CERT, KEY)
    url = f"https://localhost:{server.port}"
    try:
        with httpx.Client(base_url=url, verify=trusting, trust_env=False) as client:

            def is_ready() -> bool:
                assert server.process.poll() is None
                try:
                    return client.get("/health").status_code == 200
                except httpx.ConnectError:
                    return False

            wait_for(is_ready)
            assert client.get("/v1/models").status_code == 401
            body = {"prompt": "ab", "max_tokens": 3, "stream": True}
            headers = {"x-api-key": "k", "x-request-id": "mine", "origin": url}
            answer = client.post("/v1/completions", json=body, headers=headers)
            assert decode_events(answer.content)[-1]["choices"][0]["finish_reason"] == "length"
            client.get("/a%0ab", headers={"x-api-key": "k"})
            client.post("/a", headers={"x-api-key": "k"})
        stranger = ssl.create_default_context(cafile=CERT)
        with (
            httpx.Client(verify=stranger, trust_env=False) as client,
            pytest.raises((httpx.ReadError, httpx.ConnectError, httpx.RemoteProtocolError)),
        ):
            client.get(f"{url}/health")
        server.process.terminate()
        assert server.exit_code() == 0
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.communicate()
    return server.output.splitlines()


def check_log(lines: list[str]) -> None:
    entries = [json.loads(line) for line in lines]
    assert all({"time", "level", "logger", "message"} <= set(entry) for entry in entries)
    assert any("ready on https://" in entry["message"] for entry in entries)
    (access,) = (entry for entry in entries if entry.get("request_id") == "mine")
    assert access["logger"] == "pegainfer_server.access"
    assert (access["method"], access["path"]) == ("POST", "/v1/completions")
    assert access["status"] == 200
    assert access["duration_ms"] >= 0
    assert any(entry.get("path") == "/a%0ab" for entry in entries)
