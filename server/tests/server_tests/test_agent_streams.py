"""What streams of `/v1/responses` and `/v1/messages` do when things go wrong, on the wire."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .raw_http import RawConnection
from .scripted_engine import Script
from .served import Server, serving
from .spoken import Spoken

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
ENDLESS = {ord(">"): ord("a"), ord("a"): ord("a")}
BODIES: dict[str, dict[str, Any]] = {
    RESPONSES: {"input": "x", "max_output_tokens": 4000},
    MESSAGES: {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4000},
}


def events_of(content: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Names and objects, as hand-written clients split them; comments are dropped."""
    blocks = content.split(b"\n\n")
    assert blocks.pop() == b""
    events = []
    for block in blocks:
        if not block.startswith(b":"):
            name, data = block.split(b"\n")
            assert name.startswith(b"event: ") and data.startswith(b"data: ")
            event = json.loads(data.removeprefix(b"data: "))
            assert event["type"] == name.removeprefix(b"event: ").decode()
            events.append((event["type"], event))
    return events


def test_a_fault_after_the_first_byte(folder: Path) -> None:
    with serving(folder, Script(table=ENDLESS, step_s=0.01), ping_interval_s=0.5) as server:
        connections = {path: RawConnection(server.address) for path in BODIES}
        contents: dict[str, bytes] = {}
        for path, connection in connections.items():
            connection.post(path, {**BODIES[path], "stream": True})
            assert connection.read_head()[0] == 200
            contents[path] = connection.read_chunk() + connection.read_chunk()
        server.script.fault = RuntimeError("boom")
        for path, connection in connections.items():
            contents[path] += b"".join(connection.read_chunks())
            connection.sock.close()
        *_, (name, last) = events_of(contents[RESPONSES])
        assert (name, last["response"]["status"]) == ("response.failed", "failed")
        assert last["response"]["error"]["code"] == "server_error"
        assert "boom" in last["response"]["error"]["message"]
        (item,) = last["response"]["output"]
        assert item["status"] == "incomplete" and set(item["content"][0]["text"]) == {"a"}
        *_, (name, last) = events_of(contents[MESSAGES])
        assert (name, set(last)) == ("error", {"type", "error"})
        assert last["error"]["type"] == "api_error" and "boom" in last["error"]["message"]
        assert b"[DONE]" not in contents[RESPONSES] + contents[MESSAGES]
        # Both are told of a dead engine in their own shapes.
        dead = server.post(MESSAGES, BODIES[MESSAGES])
        assert (dead.status_code, dead.json()["error"]["type"]) == (503, "overloaded_error")
        assert dead.headers["retry-after"]
        assert server.post(RESPONSES, BODIES[RESPONSES]).json()["error"]["code"] == "dead"


def test_silence_and_a_late_fault(folder: Path) -> None:
    with serving(folder, Script(hold_prefill=True), ping_interval_s=0.5) as server:
        connections = {path: RawConnection(server.address) for path in BODIES}
        for path, connection in connections.items():
            connection.post(path, {**BODIES[path], "stream": True})
        first = {
            path: connection.read_head() and connection.read_chunk()
            for path, connection in connections.items()
        }
        assert [name for name, _ in events_of(first[RESPONSES])] == [
            "response.created",
            "response.in_progress",
        ]
        assert first[MESSAGES] == b'event: ping\ndata: {"type":"ping"}\n\n'
        assert connections[RESPONSES].read_chunk() == b": ping\n\n"
        server.script.fault = RuntimeError("boom")
        for path, last in ((RESPONSES, "response.failed"), (MESSAGES, "error")):
            rest = b"".join(connections[path].read_chunks())
            assert events_of(rest)[-1][0] == last
            connections[path].sock.close()


def test_clients_that_go_away_are_aborted(folder: Path) -> None:
    with serving(folder, Script(table=ENDLESS, step_s=0.002)) as server:
        for path, stream in itertools.product(BODIES, (False, True)):
            with RawConnection(server.address) as connection:
                connection.post(path, {**BODIES[path], "stream": stream})
                if stream:
                    assert connection.read_head()[0] == 200 and connection.read_chunk()
                else:
                    server.wait_for(lambda: server.state.num_open == 1)
            server.wait_for(lambda: server.state.num_open == 0, 2)
        server.wait_for(lambda: server.metric("num_requests_running") == 0, 2)
        assert server.metric("kv_cache_usage_perc") == 0
        assert [record.finish_reason for record in server.records] == ["abort"] * 4
        assert {record.endpoint for record in server.records} == set(BODIES)


def test_keys_are_asked_for_in_each_shape(folder: Path) -> None:
    with serving(folder, key_digests=(b"x" * 32,)) as server:
        refused = server.post(MESSAGES, BODIES[MESSAGES], headers={"x-api-key": "k"})
        assert (refused.status_code, refused.json()["error"]["type"]) == (
            401,
            "authentication_error",
        )
        assert refused.headers["request-id"] == refused.json()["request_id"]
        refused = server.post(RESPONSES, BODIES[RESPONSES])
        assert refused.json()["error"]["code"] == "invalid_api_key"


_SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
)
_KINDS = st.sampled_from(
    [
        "text",
        "input_text",
        "message",
        "function",
        "function_call",
        "function_call_output",
        "image",
        "reasoning",
        "thinking",
        "tool_use",
        "tool_result",
        "auto",
        "tool",
        "json_schema",
        "\ud800",
    ]
)
_KEYS = st.sampled_from(
    [
        "type",
        "role",
        "content",
        "text",
        "name",
        "id",
        "call_id",
        "tool_use_id",
        "arguments",
        "input",
        "output",
        "summary",
        "thinking",
        "input_schema",
        "parameters",
        "schema",
        "format",
    ]
)
_VALUES = st.recursive(
    _SCALARS | _KINDS | st.sampled_from(["user", "assistant", "system", "{}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=12,
)
_FIELDS = st.sampled_from(
    [
        "input",
        "messages",
        "system",
        "instructions",
        "tools",
        "tool_choice",
        "text",
        "reasoning",
        "thinking",
        "output_config",
        "include",
        "metadata",
        "stop_sequences",
        "max_output_tokens",
        "stream",
        "chat_template_kwargs",
        "context_management",
        "logit_bias",
        "seed",
        "store",
    ]
)


@settings(
    max_examples=int(os.environ.get("PEGAINFER_FUZZ_EXAMPLES", "20")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    path=st.sampled_from([RESPONSES, MESSAGES, f"{MESSAGES}/count_tokens"]),
    fields=st.dictionaries(_FIELDS, _VALUES, max_size=4),
)
def test_hostile_bodies(talker: Server, path: str, fields: dict[str, object]) -> None:
    base = BODIES[RESPONSES if path == RESPONSES else MESSAGES]
    body = json.dumps(
        {**base, "max_tokens": 3, **fields} if path != RESPONSES else {**base, **fields}
    )
    response = talker.post_raw(path, body, "application/json")
    assert response.status_code in (200, 400), (response.text, body)
    if response.status_code == 400:
        assert response.json()["error"]["message"]


def test_the_server_is_well_after_all_of_it(talker: Server, script: Spoken) -> None:
    script.say("ok")
    talker.wait_for(lambda: not talker.state.num_open)
    assert (
        talker.post(RESPONSES, BODIES[RESPONSES]).json()["output"][0]["content"][0]["text"] == "ok"
    )
