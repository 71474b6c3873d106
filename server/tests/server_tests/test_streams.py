"""Streams byte by byte: headers, framing, pings, errors before and after the first byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .raw_http import RawConnection
from .scripted_engine import Script, chain
from .served import Server, decode_events, serving

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"


def test_the_bytes_of_a_stream(server: Server) -> None:
    server.script.table = chain("@", '"', 256)
    with RawConnection(server.address) as connection:
        headers = {"X-Request-Id": "r1"}
        body = b'{"prompt":"@","stream":true}'
        connection.send("POST", COMPLETIONS, body, headers)
        status, head = connection.read_head()
        content = connection.read_body(head)
    assert status == 200
    assert head["content-type"] == "text/event-stream; charset=utf-8"
    assert head["cache-control"] == "no-cache"
    assert head["x-accel-buffering"] == "no"
    assert head["x-request-id"] == "r1"
    created = json.loads(content.split(b"\n")[0][6:])["created"]
    start = f'{{"id":"cmpl-r1","object":"text_completion","created":{created},"model":"m",'
    assert content.decode().split("\n\n") == [
        f'data: {start}"choices":[{{"index":0,"text":"\\"","finish_reason":null}}]}}',
        f'data: {start}"choices":[{{"index":0,"text":"","finish_reason":"stop",'
        '"stop_reason":null}]}',
        "data: [DONE]",
        "",
    ]


def test_text_with_marker_like_content_survives(server: Server) -> None:
    text = "\ue000text\ue000\n\ndata: x\r\n\\"
    script = {(): text.encode()}
    ids = iter([*script[()], 256])
    server.script.next_token = lambda _: next(ids)  # type: ignore[method-assign]
    try:
        chunks = server.events(COMPLETIONS, prompt="@", max_tokens=100)
    finally:
        del server.script.next_token  # type: ignore[method-assign]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == text


def test_names_with_marker_like_content_survive(folder: Path) -> None:
    with serving(folder, model_names=('a"b\ue000text\ue000',)) as server:
        server.script.table = chain("@", "x", 256)
        chunks = server.events(COMPLETIONS, prompt="@")
        assert {chunk["model"] for chunk in chunks} == {'a"b\ue000text\ue000'}
        assert chunks[0]["choices"][0]["text"] == "x"


def test_held_back_text_makes_no_chat_events(server: Server) -> None:
    server.script.table = chain(">", "S", "T", "O", "x", 256)
    messages = [{"role": "user", "content": "hey"}]
    chunks = server.events(CHAT, messages=messages, stop=["STOP"])
    contents = [chunk["choices"][0]["delta"].get("content") for chunk in chunks]
    assert contents == ["", "STOx", None]


def test_silence_is_filled_with_comments(folder: Path) -> None:
    with serving(folder, ping_interval_s=0.5) as server:
        server.script.table = chain("@", "a", "b", 256)
        server.script.hold_prefill = True
        with RawConnection(server.address) as connection:
            connection.post(COMPLETIONS, {"prompt": "@", "stream": True})
            status, _ = connection.read_head()
            assert status == 200
            assert connection.read_chunk() == b": ping\n\n"
            assert connection.read_chunk() == b": ping\n\n"
            server.script.hold_prefill = False
            content = b"".join(connection.read_chunks())
        assert [chunk["choices"][0]["text"] for chunk in decode_events(content)] == ["a", "b", ""]


def test_a_late_refusal_becomes_an_event(folder: Path) -> None:
    with serving(folder, ping_interval_s=0.5) as server:
        server.script.hold_prefill = True
        with RawConnection(server.address) as connection:
            connection.post(COMPLETIONS, {"prompt": "@", "stream": True})
            assert connection.read_head()[0] == 200
            server.script.fault = RuntimeError("boom")
            content = b"".join(connection.read_chunks())
        assert_ends_in_error(content)


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_a_fault_after_the_first_byte_is_an_event(folder: Path, path: str) -> None:
    with serving(folder) as server:
        server.script.table = {ord("@"): ord("a"), ord("a"): ord("a"), ord(">"): ord("a")}
        server.script.step_s = 0.01
        body = {"prompt": "@", "messages": [{"role": "user", "content": "x"}], "stream": True}
        with RawConnection(server.address) as connection:
            connection.post(path, {**body, "max_tokens": 1000})
            assert connection.read_head()[0] == 200
            first = connection.read_chunk()
            server.script.fault = RuntimeError("boom")
            content = first + b"".join(connection.read_chunks())
        assert_ends_in_error(content)
        response = server.post(path, body)
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "dead"
        assert server.get("/health").json()["status"] == "dead"
        assert server.records[0].finish_reason == "error"


def assert_ends_in_error(content: bytes) -> None:
    *_, last = decode_events(content)
    assert list(last) == ["error"]
    assert last["error"]["type"] == "server_error"
    assert last["error"]["code"] == "internal_error"
    assert "boom" in last["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_fault_before_the_first_byte_is_a_status(folder: Path, stream: bool) -> None:
    with serving(folder) as server:
        server.script.hold_prefill = True
        with RawConnection(server.address) as connection:
            connection.post(COMPLETIONS, {"prompt": "@", "stream": stream})
            server.wait_for(lambda: server.metric("num_requests_waiting") == 1)
            server.script.fault = RuntimeError("boom")
            status, head = connection.read_head()
            error = json.loads(connection.read_body(head))["error"]
        assert (status, error["type"]) == (500, "server_error")
        assert "boom" in error["message"]


def test_several_steps_that_wait_leave_in_one_write(server: Server) -> None:
    server.script.table = chain("@", *"abcdefgh", 256)
    server.script.tokens_per_step = 3
    chunks = server.events(COMPLETIONS, prompt="@")
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["abc", "def", "gh", ""]


def test_a_client_that_does_not_read_is_cut_off(folder: Path) -> None:
    endless = {ord("@"): ord("a"), ord("a"): ord("a")}
    script = Script(table=endless, tokens_per_step=100, step_s=0.001)
    with serving(folder, script, max_model_len=1 << 20) as server:
        body = {"prompt": "@", "max_tokens": 1_000_000, "ignore_eos": True, "stream": True}
        with RawConnection(server.address, receive_bytes=4096) as clogged:
            clogged.post(COMPLETIONS, {**body, "logprobs": 20})
            server.wait_for(lambda: server.metric("slow_reader_aborts_total") == 1, 20)
            server.wait_for(lambda: server.state.num_open == 0)
            assert server.metric("num_requests_running") == 0
            content = b""
            while part := clogged.sock.recv(1 << 20):
                content += part
        assert b"[DONE]" not in content
        assert server.records[0].finish_reason == "abort"
        assert server.complete("x")["choices"][0]["finish_reason"] == "stop"
