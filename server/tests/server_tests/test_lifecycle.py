"""From start to exit code: ports, signals, draining, engines that die."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path

import psutil
import pytest

from pegainfer_core.cli.main import main

from .served import decode_events
from .served_process import ServeProcess, echo_model, running, start, wait_for

COMPLETIONS = "/v1/completions"
SLOW = ("--echo-decode-ms", "20")


def stream_body(max_tokens: int) -> dict[str, object]:
    return {"prompt": "ab", "max_tokens": max_tokens, "ignore_eos": True, "stream": True}


def rest_of(connection: object) -> bytes:
    return b"".join(connection.read_chunks())  # type: ignore[attr-defined]


def test_a_taken_port_is_told_before_loading(folder: Path) -> None:
    echo_model(folder)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        started_s = time.monotonic()
        server = start(folder, port=port)
        assert server.exit_code() == 2
    assert time.monotonic() - started_s < 20
    assert f"port {port}" in server.output
    assert "Traceback" not in server.output
    assert "ready" not in server.output


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--api-key-file", "/nowhere"), "--api-key-file /nowhere"),
        (("--sampling-defaults", '{"temprature":1}'), "temprature"),
        (("--generation-config", "/nowhere"), "/nowhere"),
        (("--host", "no such host"), "--host"),
    ],
)
def test_unusable_flags_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, str], words: str
) -> None:
    assert main(["serve", str(echo_model(folder)), "--port", "0", "--in-process", *flags]) == 2
    output = capsys.readouterr().err
    assert words in output
    assert "Traceback" not in output


def test_sigterm_lets_running_requests_end(folder: Path) -> None:
    with running(echo_model(folder), *SLOW) as server, server.connect() as connection:
        connection.post(COMPLETIONS, stream_body(40))
        assert connection.read_head()[0] == 200
        first = connection.read_chunk()
        server.signal(signal.SIGTERM)
        server.wait_status(503)
        assert server.get("/health")[1]["status"] == "draining"
        status, refused = server.post(COMPLETIONS, {"prompt": "a"})
        assert status == 503
        assert refused["error"]["code"] == "draining"  # type: ignore[index]
        chunks = decode_events(first + rest_of(connection))
        assert chunks[-1]["choices"][0]["finish_reason"] == "length"
        children = server.children()
        assert server.exit_code() == 0
        assert not any(child.is_running() for child in children)


def test_a_drain_that_takes_too_long_ends_in_an_error_event(folder: Path) -> None:
    flags = (*SLOW, "--shutdown-timeout", "0.3")
    with running(echo_model(folder), *flags) as server, server.connect() as connection:
        connection.post(COMPLETIONS, stream_body(3000))
        assert connection.read_head()[0] == 200
        first = connection.read_chunk()
        server.signal(signal.SIGTERM)
        *_, last = decode_events(first + rest_of(connection))
        assert last["error"]["code"] == "draining"
        assert server.exit_code() == 0


def test_a_second_signal_does_not_wait(folder: Path) -> None:
    flags = (*SLOW, "--shutdown-timeout", "60", "--in-process")
    with running(echo_model(folder), *flags) as server, server.connect() as connection:
        connection.post(COMPLETIONS, stream_body(3000))
        assert connection.read_head()[0] == 200
        server.signal(signal.SIGINT)
        server.wait_status(503)
        server.signal(signal.SIGINT)
        assert server.exit_code(5) == 0


def assert_dies(server: ServeProcess, first: bytes, connection: object) -> None:
    """Streams end in an error, new work is refused, health is not 200, the exit code is not 0."""
    *_, last = decode_events(first + rest_of(connection))
    assert last["error"]["code"] == "internal_error"
    assert server.wait_status(503, timeout_s=5) == 503
    assert server.get("/health")[1]["status"] == "dead"
    assert server.post(COMPLETIONS, {"prompt": "a"})[0] == 503


def test_a_killed_engine_ends_the_server(folder: Path) -> None:
    with running(echo_model(folder), *SLOW) as server, server.connect() as connection:
        connection.post(COMPLETIONS, stream_body(3000))
        assert connection.read_head()[0] == 200
        first = connection.read_chunk()
        engines = server.children()
        assert len(engines) == 1
        engines[0].kill()
        assert_dies(server, first, connection)
        assert server.exit_code(10) == 1
        assert not psutil.pid_exists(engines[0].pid) or not engines[0].is_running()


def test_sigterm_after_the_death_does_not_hide_it(folder: Path) -> None:
    flags = ("--in-process", *SLOW, "--echo-fail-after", "20")
    with running(echo_model(folder), *flags) as server, server.connect() as connection:
        connection.post(COMPLETIONS, stream_body(3000))
        assert connection.read_head()[0] == 200
        assert_dies(server, connection.read_chunk(), connection)
        started_s = time.monotonic()
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 1
        assert time.monotonic() - started_s < 4


HOOKS = """
import json, pathlib, time
import litestar
from pegainfer_core.plugin import hookimpl

__pegainfer_api__ = "1.0"
LOG = pathlib.Path(__file__).with_name("log")


def note(*words):
    with LOG.open("a") as log:
        log.write(" ".join(str(word) for word in words) + "\\n")


@hookimpl
def server_routes(app_config):
    @litestar.get("/extra")
    async def extra() -> dict[str, int]:
        return {"routes": len(app_config.route_handlers)}

    return [extra]


@hookimpl
def engine_ready(engine, family, plan):
    note("ready", family.id, plan.max_model_len, engine.info.family)
    time.sleep(1.5)


@hookimpl
def engine_stopping(engine):
    note("stopping", engine.info.family)


@hookimpl
def request_finished(record):
    note("finished", record.external_id, record.completion_tokens, record.finish_reason)
"""
CLASH = """
import litestar
from pegainfer_core.plugin import hookimpl

__pegainfer_api__ = "1.0"


@hookimpl
def server_routes(app_config):
    @litestar.get("/health")
    async def health() -> str:
        return "mine"

    return [health]
"""


def install(site: Path, name: str, source: str) -> None:
    """What pip would have left of a plugin."""
    site.mkdir(exist_ok=True)
    (site / f"{name}.py").write_text(source)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[pegainfer.plugins]\n{name} = {name}\n")


def test_hooks_accompany_the_engine(folder: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    install(site, "watcher", HOOKS)
    install(site, "clasher", CLASH)
    environ = {"PYTHONPATH": str(site)}
    log = site / "log"
    server = start(echo_model(folder), "--in-process", environ=environ)
    try:
        # Until engine_ready has returned, health is not 200, but the port is bound.
        server.wait_status(503)
        assert server.get("/health")[1]["status"] == "loading"
        server.wait_status(200)
        assert log.read_text().split() == ["ready", "echo", "4096", "echo"]
        status, _ = server.post(COMPLETIONS, {"prompt": "ab", "request_id": "r", "max_tokens": 2})
        assert status == 200
        wait_for(lambda: "finished r 2 length" in log.read_text())
        assert server.get("/extra")[1]["routes"] >= 11
        assert server.get("/health")[1] == {"status": "ok"}
        plugins = server.get("/v1/plugins")[1]["plugins"]
        assert "watcher" in {plugin["name"] for plugin in plugins}  # type: ignore[attr-defined]
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0
        assert log.read_text().splitlines()[-1] == "stopping echo"
        assert "plugin clasher: its routes are left out, /health is taken already" in server.output
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.communicate()


def test_sigterm_while_loading(folder: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    install(site, "sleeper", HOOKS.replace("time.sleep(1.5)", "time.sleep(6)"))
    server = start(echo_model(folder), environ={"PYTHONPATH": str(site)})
    server.wait_status(503)
    children = server.children()
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    wait_for(lambda: not any(child.is_running() for child in children))


def test_a_hook_that_raises_stops_the_start(folder: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    install(site, "breaker", HOOKS.replace("time.sleep(1.5)", "raise ValueError('no')"))
    server = start(echo_model(folder), environ={"PYTHONPATH": str(site)})
    assert server.exit_code() == 2
    assert "breaker" in server.output
    assert "ValueError: no" in server.output
