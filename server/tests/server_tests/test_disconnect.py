"""A client that goes away stops its request, in every phase and both modes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .raw_http import RawConnection
from .scripted_engine import Script
from .served import Server, serving

COMPLETIONS = "/v1/completions"
ENDLESS = {ord("A"): ord("A")}


def body(stream: bool) -> dict[str, object]:
    return {"prompt": "A", "max_tokens": 4000, "ignore_eos": True, "stream": stream}


def assert_back_to_rest(server: Server, num_aborted: int) -> None:
    server.wait_for(lambda: server.metric("num_requests_running") == 0, 2)
    server.wait_for(lambda: server.metric("num_requests_waiting") == 0, 2)
    server.wait_for(lambda: server.state.num_open == 0, 2)
    assert server.metric("kv_cache_usage_perc") == 0
    assert server.metric("request_success_total", finished_reason="abort") == num_aborted


@pytest.fixture
def slow(folder: Path) -> Script:
    return Script(table=ENDLESS, step_s=0.002)


@pytest.mark.parametrize("stream", [False, True])
def test_in_decode(folder: Path, slow: Script, stream: bool) -> None:
    with serving(folder, slow) as server:
        for count in range(1, 21):
            with RawConnection(server.address) as connection:
                connection.post(COMPLETIONS, body(stream))
                if stream:
                    assert connection.read_head()[0] == 200
                    assert connection.read_chunk()
                else:
                    server.wait_for(lambda: server.metric("num_requests_running") == 1)
            server.wait_for(lambda: server.state.num_open == 0, 2)
            assert len(server.records) == count
        assert_back_to_rest(server, 20)
        assert {record.finish_reason for record in server.records} == {"abort"}
        fill(server)


def test_in_the_body(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(folder, Script()) as server:
        with RawConnection(server.address) as connection:
            head = {"Content-Length": "1000"}
            connection.send("POST", COMPLETIONS, b'{"prompt": ', headers=head)
            server.get("/health")  # Answered behind it: the server waits for the body now.
        for _ in range(20):
            server.get("/health")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("stream", [False, True])
def test_while_queued(folder: Path, slow: Script, stream: bool) -> None:
    slow.hold_prefill = True
    leave_early(folder, slow, stream, lambda s: s.metric("num_requests_waiting") == 1)


@pytest.mark.parametrize("stream", [False, True])
def test_in_prefill(folder: Path, slow: Script, stream: bool) -> None:
    slow.step_s = 0.1
    leave_early(folder, slow, stream, lambda s: s.state.num_open == 1)


def leave_early(
    folder: Path, script: Script, stream: bool, reached: Callable[[Server], bool]
) -> None:
    with serving(folder, script) as server:
        for _ in range(5):
            with RawConnection(server.address) as connection:
                connection.post(COMPLETIONS, body(stream))
                server.wait_for(lambda: reached(server))
            server.wait_for(lambda: server.state.num_open == 0, 2)
        script.hold_prefill = False
        assert_back_to_rest(server, 5)


@pytest.mark.parametrize("stream", [False, True])
def test_on_a_kept_connection(folder: Path, slow: Script, stream: bool) -> None:
    with serving(folder, slow) as server:
        with RawConnection(server.address) as connection:
            for _ in range(2):
                connection.post(COMPLETIONS, {"prompt": "A", "max_tokens": 2, "stream": stream})
                status, head = connection.read_head()
                assert status == 200
                assert connection.read_body(head)
            connection.post(COMPLETIONS, body(stream))
            server.wait_for(lambda: server.metric("num_requests_running") == 1)
        server.wait_for(lambda: server.state.num_open == 0, 2)
        assert_back_to_rest(server, 1)
        assert server.metric("request_success_total", finished_reason="length") == 2


def fill(server: Server) -> None:
    """As many requests as a fresh server takes run at once."""
    limit = 32
    connections = [RawConnection(server.address) for _ in range(limit)]
    for connection in connections:
        connection.post(COMPLETIONS, body(stream=True))
    server.wait_for(lambda: server.metric("num_requests_running") == limit)
    for connection in connections:
        connection.sock.close()
    server.wait_for(lambda: server.state.num_open == 0, 5)
