"""A05: temperature 0 is argmax whatever the filters; what is out of range never gets to the engine.

Types are strict: `true` and `"5"` are no integers, and NaN is no JSON.
"""

from __future__ import annotations

import concurrent.futures
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import fields
from pegainfer_server.protocol.chat import ChatRequest
from pegainfer_server.protocol.completion import CompletionRequest
from pegainfer_server.protocol.refused import REFUSED_IN_CHAT

from pegainfer_core.testing.tiny import row, script, table_model
from tests.cases.conftest import BARE_TEMPLATE, Serve
from tests.cases.http_server import CHAT, COMPLETIONS, HttpServer

MESSAGES = [{"role": "user", "content": "@"}]


@pytest.fixture(scope="module")
def shared(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> HttpServer:
    """Behind `@` the best is `b`, closely followed by `c`, `d` and `e`; `A` follows `A`."""
    first = row({"b": 2.0, "c": 1.5, "d": 1.2, "e": 1.0}, others=-40)
    table = {ord("@"): first} | script("A", ["A"])
    folder = tmp_path_factory.mktemp("a05") / "model"
    table_model(folder, table, max_position_embeddings=512, chat_template=BARE_TEMPLATE)
    return serve(folder)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"top_p": 1, "top_k": -1},
        {"top_k": 0},
        {"top_p": 0.1, "top_k": 1},
        {"top_p": 0},
        {"min_p": 1},
        {"seed": 7},
        {"seed": -1},
        {"seed": 2**64 - 1},
        {"top_k": 100_000},
        {"temperature": 1, "top_k": 1},
        {"temperature": 1e-9},
        {"temperature": 1, "top_p": 0},
        {"temperature": 1, "min_p": 1},
    ],
)
def test_the_argmax_whatever_the_filters(server: HttpServer, fields: dict[str, Any]) -> None:
    assert server.complete("@", max_tokens=1, **fields).text == "b"
    assert server.chat("@", max_tokens=1, **fields).text == "b"


@pytest.mark.parametrize("fields", [{}, {"top_k": 0}, {"top_k": -1}, {"top_k": None}])
def test_an_absent_top_k_is_off(server: HttpServer, fields: dict[str, Any]) -> None:
    texts = {
        server.complete("@", max_tokens=1, temperature=1, seed=seed, **fields).text
        for seed in range(20)
    }
    assert texts == {"b", "c", "d", "e"}


REFUSED = {
    "seed": ["18446744073709551616", "-9223372036854775809", "1.5", '"7"', "1e3"],
    "logit_bias": [
        '{"1024":5}',
        '{"-1":5}',
        '{"a":5}',
        '{"98":101}',
        '{"98":NaN}',
        '{"98":-Infinity}',
        '{"98":1e999}',
        '{"98":null}',
        json.dumps({str(i): 0 for i in range(100_000)}),
        json.dumps({str(i): 0 for i in range(5_000)}),
    ],
    "stop_token_ids": ["[1024]", "[-1]", "[1.5]", "[true]", "98", "[1e2]"],
    "temperature": ["NaN", "Infinity", "-Infinity", "-0.1", "1e999", '"1"', "true", "[1]"],
    "top_p": ["NaN", "Infinity", "-Infinity", "-0.1", "1.01"],
    "min_p": ["NaN", "-0.5", "1.5"],
    "top_k": ["-2", "1.5", "true", "NaN"],
    "repetition_penalty": ["NaN", "Infinity", "0", "-1"],
    "presence_penalty": ["NaN", "-Infinity", "2.5", "-2.5"],
    "frequency_penalty": ["NaN", "Infinity", "3"],
    "n": ["0", "-1", "true", "1.0", '"1"'],
    "max_tokens": ["-1", '"5"', "true", "5.0", "1e1", "[5]", "NaN"],
    "min_tokens": ["-1", '"1"', "1000000"],
    "allowed_token_ids": ["[]", "[1024]", "[-1]"],
    "bad_words": ['[""]', '[" "]', "[7]"],
    "ignore_eos": ["1", '"true"'],
    "stream": ['"yes"', "1"],
    "stop": ["5", "[5]", "{}"],
}


@pytest.mark.parametrize("field", REFUSED)
def test_what_is_refused_and_its_name(server: HttpServer, field: str) -> None:
    """Raw bodies, as clients in other languages write them."""
    for value in REFUSED[field]:
        for path in (COMPLETIONS, CHAT):
            error = server.refused(path, body_with(path, field, value))
            assert field in error["message"], (value[:60], error)
            assert error["param"].removeprefix("$.").startswith(field), (value[:60], error)


def test_a_running_request_does_not_notice(server: HttpServer) -> None:
    fields = {"prompt": "A", "max_tokens": 400, "temperature": 0}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(server.whole, COMPLETIONS, **fields)
        server.wait_for(lambda: server.load()[0] == 1)
        for field, values in REFUSED.items():
            server.refused(COMPLETIONS, body_with(COMPLETIONS, field, values[0]))
        # What only the engine can refuse must have met the other request there.
        assert not answer.done()
        assert answer.result()["choices"][0]["text"] == "A" * 400


@pytest.mark.parametrize(
    ("path", "asked", "param"),
    [
        (COMPLETIONS, {"logprobs": 21}, "logprobs"),
        (COMPLETIONS, {"logprobs": 1000}, "logprobs"),
        (COMPLETIONS, {"logprobs": -1}, "logprobs"),
        (COMPLETIONS, {"logprobs": True}, "logprobs"),
        (COMPLETIONS, {"prompt_logprobs": 21}, "prompt_logprobs"),
        (CHAT, {"logprobs": True, "top_logprobs": 1000}, "top_logprobs"),
        (CHAT, {"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        (CHAT, {"top_logprobs": 2}, "top_logprobs"),
        (CHAT, {"logprobs": 1}, "logprobs"),
    ],
)
def test_logprobs_out_of_range(
    server: HttpServer, path: str, asked: dict[str, object], param: str
) -> None:
    prompt = {"prompt": "@"} if path == COMPLETIONS else {"messages": MESSAGES}
    body = json.dumps({**prompt, **asked}).encode()
    assert server.refused(path, body)["param"].removeprefix("$.") == param


def test_a_name_given_twice(server: HttpServer) -> None:
    """The last one counts, as in every JSON reader; both are checked for their type."""
    body = b'{"prompt":"@","temperature":0,"max_tokens":3,"max_tokens":1}'
    assert server.post(COMPLETIONS, body).json()["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"prompt":"@","logit_bias":{"1":1},"top_p":NaN}', "top_p"),
        (b'{"prompt":"@","stop":["a","b"],"logit_bias":{"1":[{"x":NaN}]}}', "logit_bias"),
        (b'{"prompt":"@","user":"a\\"{","seed":1,"min_p":  -Infinity}', "min_p"),
        (b'{"prompt":"@","seed":1,NaN}', None),
        (b'{"prompt":"@"}}', None),
        (b'{"prompt":"@"', None),
        (b"NaN", None),
    ],
)
def test_the_field_that_is_no_json_is_named(
    server: HttpServer, body: bytes, param: str | None
) -> None:
    error = server.refused(COMPLETIONS, body)
    assert (error["param"], error["code"]) == (param, "json_parse_error")


FIELDS = sorted(
    {field.encode_name for kind in (ChatRequest, CompletionRequest) for field in fields(kind)}
    | REFUSED_IN_CHAT.keys()
)
#: Raw JSON, with what generators of values do not make.
RAW = st.recursive(
    st.sampled_from(
        ["null", "true", "0", "-1", "2", "1.5", "1e999", "NaN", '""', '"a"', '"\\ud800"']
    )
    | st.integers(-(2**70), 2**70).map(str),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
        | st.dictionaries(
            st.sampled_from(["a", "1", "type", "role", "content"]), inner, max_size=3
        ).map(
            lambda items: "{" + ",".join(f'"{key}":{value}' for key, value in items.items()) + "}"
        )
    ),
    max_leaves=6,
)
DEEP = st.integers(50, 3000).map(lambda depth: "[" * depth + "]" * depth)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # One probe for all.
)
@given(
    st.sampled_from([COMPLETIONS, CHAT, "/tokenize"]),
    st.dictionaries(st.sampled_from(FIELDS), RAW | DEEP, min_size=1, max_size=3),
)
def test_no_body_is_our_fault(server: HttpServer, path: str, more: dict[str, str]) -> None:
    """Whatever the fields hold: an answer or a refusal, and never an internal error."""
    start = {"prompt": '"@"'} if path == COMPLETIONS else {"messages": json.dumps(MESSAGES)}
    body = start | {"max_tokens": "1"} | more
    raw = "{" + ",".join(f'"{name}":{value}' for name, value in body.items()) + "}"
    response = server.post(path, raw.encode())
    assert response.status_code in (200, 400, 404), response.text[:500]
    assert b"internal_error" not in response.content


def test_values_that_json_cannot_hold_in_refused_fields(server: HttpServer) -> None:
    for value in ("1e999", "-1e999", "[" * 900 + "]" * 900):
        error = server.refused(COMPLETIONS, f'{{"prompt":"@","tfs_z":{value}}}'.encode())
        assert (error["param"], error["code"]) == ("tfs_z", "unsupported_parameter")


def test_template_variables_that_are_nested_too_deeply(server: HttpServer) -> None:
    for depth, levels in ((90, True), (900, False)):
        value = json.loads("[" * depth + "]" * depth)
        body = {"messages": MESSAGES, "max_tokens": 1, "chat_template_kwargs": {"x": value}}
        if levels:
            assert server.post(CHAT, body).status_code == 200
        else:
            assert "nested" in server.refused(CHAT, body)["message"]


def body_with(path: str, field: str, value: str) -> bytes:
    """A request whose only fault is one field's raw value."""
    prompt = '"prompt":"@"' if path == COMPLETIONS else f'"messages":{json.dumps(MESSAGES)}'
    rest = "" if field == "temperature" else '"temperature":0,'
    rest += '"min_tokens":1,' if field == "stop_token_ids" else ""
    return f'{{{prompt},{rest}"{field}":{value}}}'.encode()
