"""O01: an engine that dies or freezes is told to everybody who waits, and ends the server.

Health is not 200 from then on, and the exit status is not 0: supervisors act on these two.
"""

from __future__ import annotations

import concurrent.futures
import json
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from pegainfer_core.testing.byte_tokenizer import byte_tokenizer
from pegainfer_core.testing.tiny import script, table_model
from tests.cases.http_server import COMPLETIONS, HttpServer, JsonObject, decode_events, error_of
from tests.cases.serve_process import ServeProcess, serve_process
from tests.cases.slow_plugin import SlowModel

#: The issue's limit for a death; a freeze is one when nothing was heard for five seconds.
NOTICED_S = 5.0
FREEZE_NOTICED_S = 8.0
ENDED_S = 20.0
LONG: JsonObject = {"prompt": "A", "max_tokens": 60_000, "temperature": 0}

Asked = concurrent.futures.Future[httpx.Response]


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    folder = byte_tokenizer(tmp_path / "echo")
    config = {"model_type": "echo", "max_position_embeddings": 65_536}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@contextmanager
def two_waiting(server: HttpServer) -> Iterator[list[Asked]]:
    """One request streams and one waits for its whole answer meanwhile."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(server.post, COMPLETIONS, LONG | {"stream": s}) for s in (True, False)]
        server.wait_for(lambda: server.load()[0] == 2)
        yield asked


def check_end(server: HttpServer, asked: Sequence[Asked], limit_s: float, cause: str) -> None:
    """What clients see of a death: the answers that wait for it, new requests, health."""
    started_s = time.monotonic()
    while (health := server.get("/health")).status_code == 200:
        assert time.monotonic() - started_s < limit_s
        time.sleep(0.1)
    assert health.status_code == 503
    assert health.json()["status"] in ("dead", "stalled")
    streamed, whole = (future.result(timeout=limit_s) for future in asked)
    *_, last = decode_events(streamed.content)
    assert streamed.status_code == 200
    assert cause in last["error"]["message"], last
    assert cause in error_of(whole, 500)["message"]
    started_s = time.monotonic()
    for stream in (False, True):
        refused = server.post(COMPLETIONS, LONG | {"stream": stream})
        assert error_of(refused, 503)["code"] in ("dead", "stalled")
        assert "retry-after" in refused.headers
    assert time.monotonic() - started_s < 10
    assert server.get("/health").status_code == 503


def check_exit(started: ServeProcess) -> None:
    assert started.wait_exit(ENDED_S) == 1, started.output()
    assert "Traceback" not in started.output().replace("engine step failed\nTraceback", "")


def test_the_engine_is_killed(tmp_path: Path) -> None:
    folder = table_model(tmp_path / "m", script("A", ["A"]), max_position_embeddings=65_536)
    with serve_process(folder, log=tmp_path / "log") as started:
        server = started.wait_ready()
        with two_waiting(server) as asked:
            started.engine.kill()
            check_end(server, asked, NOTICED_S, "engine process ended unexpectedly")
        check_exit(started)


def test_the_engine_freezes(tmp_path: Path, echo: Path) -> None:
    with serve_process(echo, "--echo-decode-ms", "1", log=tmp_path / "log") as started:
        server = started.wait_ready()
        with two_waiting(server) as asked:
            started.engine.send_signal(signal.SIGSTOP)
            check_end(server, asked, FREEZE_NOTICED_S, "no sign of life")
        started.terminate()
        check_exit(started)


@pytest.mark.parametrize("flags", ["", "--in-process"])
def test_a_step_raises(tmp_path: Path, echo: Path, flags: str) -> None:
    """With SIGTERM behind it, which must not turn the failure into a success."""
    fault = "--echo-decode-ms 5 --echo-fail-after 200"
    with serve_process(echo, *fault.split(), *flags.split(), log=tmp_path / "log") as started:
        server = started.wait_ready()
        with two_waiting(server) as asked:
            check_end(server, asked, NOTICED_S, "asked to fail in step 200")
        started.terminate()
        check_exit(started)


def test_before_it_is_ready_and_when_the_server_is_killed(tmp_path: Path) -> None:
    model = SlowModel(tmp_path)
    words = [model.folder, "--echo-decode-ms", "1"]
    with serve_process(*words, log=tmp_path / "log", env=model.env) as started:
        server = started.wait_listening()
        for path in ("/health", "/v1/health"):
            response = server.get(path)
            assert (response.status_code, response.json()["status"]) == (503, "loading")
        assert error_of(server.post(COMPLETIONS, LONG), 503)["code"] == "loading"
        assert error_of(server.get("/v1/models"), 503)["code"] == "loading"
        assert server.get("/metrics").status_code == 200
        model.let_load()
        started.wait_ready()
        with two_waiting(server) as asked:
            started.process.kill()
            started.wait_exit(NOTICED_S)  # The engine too.
            assert all(future.exception() for future in asked)


def test_stopped_while_it_loads(tmp_path: Path) -> None:
    model = SlowModel(tmp_path)
    with serve_process(model.folder, log=tmp_path / "log", env=model.env) as started:
        server = started.wait_listening()
        assert server.get("/health").status_code == 503
        started.wait_for(lambda: bool(started.children()))
        started.terminate()
        assert started.wait_exit(NOTICED_S) == 0, started.output()
