"""Requests that must not reach the engine, or that it refuses: 400, naming the field."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pegainfer_server.far_too_long import LONG_CHARS

from pegainfer_core.text import Tokenizer

from .scripted_engine import chain
from .served import Server, serving

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hey"}]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("small"), max_model_len=64) as server:
        yield server


@pytest.fixture(autouse=True)
def probe(server: Server) -> Iterator[None]:
    """After every hostile case the same request still gets the same answer."""
    server.script.table = chain("@", "b", 256)
    yield
    server.script.table = chain("@", "b", 256)
    assert server.complete("@", temperature=0)["choices"][0]["text"] == "b"


def error_of(response: httpx.Response, status: int = 400) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert list(body) == ["error", "request_id"]
    error: dict[str, Any] = body["error"]
    assert list(error) == ["message", "type", "param", "code"]
    assert error["message"]
    return error


def raw(server: Server, path: str, body: str | bytes) -> httpx.Response:
    return server.post_raw(path, body, "application/json")


@pytest.mark.parametrize(
    "prompt",
    [
        "", [], [""], [[]], ["a", ""], ["a", 65], [[65], [-1]], [1024], [-1], [1.5], [True],
        [[65], "a"], None,
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_prompts_without_a_meaning(server: Server, prompt: object, stream: bool) -> None:
    response = server.post(COMPLETIONS, {"prompt": prompt, "max_tokens": 1, "stream": stream})
    assert "prompt" in str(error_of(response)["param"])


def test_a_missing_prompt_is_named(server: Server) -> None:
    error = error_of(server.post(COMPLETIONS, {"max_tokens": 1}))
    assert error["param"] == "$.prompt"
    assert error["message"] == "prompt is required"


def test_the_last_row_of_the_vocabulary_is_a_token(server: Server) -> None:
    assert server.complete([1023], max_tokens=1)["usage"]["prompt_tokens"] == 1


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
        {"seed": 2**63 - 1},
    ],
)
def test_greedy_takes_any_filter(server: Server, fields: dict[str, Any]) -> None:
    assert server.complete("@", temperature=0, **fields)["choices"][0]["text"] == "b"


#: Spellings that `int` would take for an id, or nearly.
NO_IDS = ("05", "00", "-0", "-5", "+5", " 5", "5 ", "1_0", "5.0", "\u0665", "9" * 19, "")


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("seed", '{"seed":18446744073709551616}'),
        ("logit_bias", '{"logit_bias":{"1024":5}}'),
        ("logit_bias", '{"logit_bias":{"a":5}}'),
        ("logit_bias", '{"logit_bias":{"5":1,"05":2}}'),
        *(("logit_bias", f'{{"logit_bias":{{"{key}":1}}}}') for key in NO_IDS),
        ("logit_bias", '{"logit_bias":{"1":101}}'),
        ("logit_bias", json.dumps({"logit_bias": {str(i): 0 for i in range(100_000)}})),
        ("stop_token_ids", '{"stop_token_ids":[1024],"min_tokens":1}'),
        ("temperature", '{"temperature":NaN}'),
        ("top_p", '{"top_p":Infinity}'),
        ("presence_penalty", '{"presence_penalty":-Infinity}'),
        ("temperature", '{"temperature":1e999}'),
        ("temperature", '{"temperature":-0.1}'),
        ("top_p", '{"top_p":1.1}'),
        ("min_p", '{"min_p":-1}'),
        ("top_k", '{"top_k":-2}'),
        ("repetition_penalty", '{"repetition_penalty":0}'),
        ("frequency_penalty", '{"frequency_penalty":3}'),
        ("n", '{"n":0}'),
        ("n", '{"n":257}'),
        ("best_of", '{"best_of":2}'),
        ("best_of", '{"best_of":1,"n":2}'),
        ("n", '{"n":true}'),
        ("max_tokens", '{"max_tokens":-1}'),
        ("max_tokens", '{"max_tokens":"5"}'),
        ("max_tokens", '{"max_tokens":5.0}'),
        ("max_tokens", '{"max_tokens":0}'),
        ("min_tokens", '{"min_tokens":9,"max_tokens":3}'),
        ("logprobs", '{"logprobs":21}'),
        ("logprobs", '{"logprobs":-1}'),
        ("prompt_logprobs", '{"prompt_logprobs":1,"stream":true}'),
        ("allowed_token_ids", '{"allowed_token_ids":[]}'),
        ("bad_words", '{"bad_words":[""]}'),
        ("bad_words", json.dumps({"bad_words": ["x"] * 1025})),
        ("bad_words", json.dumps({"bad_words": ["x" * 1001]})),
        ("stop", '{"stop":[""]}'),
        ("stop", '{"stop":""}'),
        ("stop", json.dumps({"stop": list("abcdefghijklmnopq")})),
        ("stream_options", '{"stream_options":{"include_usage":true}}'),
        ("stream", '{"stream":"yes"}'),
        ("request_id", '{"request_id":"a b"}'),
        ("cache_salt", '{"cache_salt":""}'),
        ("model", '{"model":5}'),
    ],
)
def test_fields_out_of_range_are_named(server: Server, field: str, body: str) -> None:
    error = error_of(raw(server, COMPLETIONS, '{"prompt":"@",' + body[1:]))
    assert error["param"] in (field, f"$.{field}", f"$.{field}[...]")
    assert field in error["message"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "body",
    ["", "{", "[]", "5", '"x"', '{"prompt":"a"} x', b'{"prompt":"\xff"}', '{"prompt":"\\ud800"}',
     '{"prompt":' + "[" * 100_000],
)  # fmt: skip
def test_bodies_that_are_no_json_object(server: Server, body: str | bytes) -> None:
    error = error_of(raw(server, COMPLETIONS, body))
    assert error["code"] in ("json_parse_error", "invalid_value")


@pytest.mark.parametrize("body", ["", " \n"])
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, "/v1/responses", "/tokenize", "/detokenize"])
def test_an_empty_body_is_called_so(server: Server, path: str, body: str) -> None:
    error = error_of(raw(server, path, body))
    assert error["message"].startswith("the body is empty; send a JSON object")
    assert error["code"] == "json_parse_error"


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("never_heard_of", None),
        ("regexp", "a"),
        ("structural_tag", {"a": 1}),
        ("whitespace_pattern", " "),
        ("disable_fallback", True),
        ("disable_any_whitespace", True),
    ],
)
def test_keys_of_structured_outputs_are_known_or_refused(
    server: Server, path: str, key: str, value: object
) -> None:
    outputs = {"regex": "a", key: value}
    body = {"prompt": "@", "messages": MESSAGES, "structured_outputs": outputs}
    error = error_of(server.post(path, body))
    assert error["code"] == "unsupported_parameter"
    assert "structured_outputs" in str(error["param"])
    assert key in error["message"]


UNSUPPORTED: dict[str, object] = {
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "tool_choice": "required",
    "response_format": {"type": "json_object"},
    "guided_json": {"type": "object"},
    "structured_outputs": {"regex": "a"},
    "suffix": "x",
    "best_of": 2,
    "chat_template": "{{ 1 }}",
    "use_beam_search": True,
    "logits_processors": ["f"],
    "functions": [{"name": "f"}],
}


@pytest.mark.parametrize("field", UNSUPPORTED)
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_known_fields_that_do_nothing_here_are_refused(
    server: Server, field: str, path: str
) -> None:
    body = {"prompt": "@", "messages": MESSAGES, field: UNSUPPORTED[field]}
    error = error_of(server.post(path, body))
    # A choice among no tools makes no sense, whoever can follow it.
    without_tools = (path, field) == (CHAT, "tool_choice")
    assert error["code"] == ("invalid_value" if without_tools else "unsupported_parameter")
    assert error["param"] == field


def test_values_that_ask_for_nothing_pass(server: Server) -> None:
    nothing = {
        "tools": [],
        "tool_choice": "none",
        "parallel_tool_calls": True,
        "response_format": {"type": "text"},
        "n": 1,
        "best_of": 1,
        "suffix": None,
        "stop": None,
        "logit_bias": None,
        "user": None,
        "model": "",
        "stream_options": None,
    }
    for path in (COMPLETIONS, CHAT):
        body = {"prompt": "@", "messages": MESSAGES, **nothing}
        assert server.post(path, body).status_code == 200


def test_unknown_fields_are_logged_once(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="pegainfer_server"):
        for _ in range(2):
            server.complete("@", a_field_nobody_knows=[1, {"x": 2}])
    found = [r for r in caplog.records if "a_field_nobody_knows" in r.getMessage()]
    assert len(found) == 1


def test_an_unknown_model_is_404(server: Server) -> None:
    for path in (COMPLETIONS, CHAT):
        body = {"model": "gpt-0", "prompt": "@", "messages": MESSAGES}
        error = error_of(server.post(path, body), 404)
        assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert error_of(server.get("/v1/models/gpt-0"), 404)["code"] == "model_not_found"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("length", [64, 65, 5000])
def test_prompts_beyond_the_context(server: Server, length: int, stream: bool) -> None:
    body = {"prompt": "a" * length, "max_tokens": 1, "stream": stream}
    error = error_of(server.post(COMPLETIONS, body))
    assert error["code"] == "context_length_exceeded"
    assert str(length) in error["message"]
    assert "64" in error["message"]


def test_a_prompt_far_beyond_the_context_is_refused_by_its_beginning(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoding all of a body of megabytes would keep a core busy for a minute."""
    far = "a" * (LONG_CHARS + 1)
    seen: list[int] = []
    encode = Tokenizer.encode

    def noting(self: Tokenizer, text: str, add_special_tokens: bool) -> list[int]:
        seen.append(len(text))
        return encode(self, text, add_special_tokens)

    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "encode", noting)
        for path, body, param in (
            (COMPLETIONS, {"prompt": far}, "prompt"),
            (COMPLETIONS, {"prompt": ["a", far]}, "prompt[1]"),
            (CHAT, {"messages": [{"role": "user", "content": far}]}, "messages"),
        ):
            error = error_of(server.post(path, body))
            assert (error["code"], error["param"]) == ("context_length_exceeded", param)
            assert "first 512 of its 104" in error["message"]
        assert seen == [512] * 3
    server.script.table = {ord("a"): ord("a")}
    cut = server.complete(far, max_tokens=1, truncate_prompt_tokens=5)
    assert cut["usage"]["prompt_tokens"] == 5


def test_the_context_can_be_filled_to_its_last_token(server: Server) -> None:
    server.script.table = {ord("a"): ord("a")}
    assert server.complete("a" * 63, max_tokens=1)["usage"]["completion_tokens"] == 1
    # The default limit gives way to the room there is; one that was asked for does not.
    assert server.complete("a" * 60)["usage"]["completion_tokens"] == 4
    error = error_of(server.post(COMPLETIONS, {"prompt": "a" * 10, "max_tokens": 1_000_000}))
    assert error["code"] == "context_length_exceeded"
    assert "1000000" in error["message"]
    assert "10 tokens" in error["message"]
    scored = server.complete("a" * 64, max_tokens=0, echo=True, logprobs=1)
    assert scored["usage"]["completion_tokens"] == 0


def test_refusals_of_the_engine_are_refusals_of_a_stream_too(server: Server) -> None:
    for path in (COMPLETIONS, CHAT):
        body = {"prompt": "@", "messages": MESSAGES, "stream": True, "temperature": -1}
        assert error_of(server.post(path, body))["param"] == "temperature"


def test_capabilities_are_honoured_or_refused(server: Server) -> None:
    error = error_of(server.post(CHAT, {"messages": MESSAGES, "truncate_prompt_tokens": 0}))
    assert error["message"] == "the prompt has no tokens"


def many(item: str, count: int) -> str:
    return ",".join([item] * count)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (COMPLETIONS, '{"prompt":[' + many("[]", 600_000) + "]}", None),
        (COMPLETIONS, '{"prompt":"@","x":{' + many('"a":1', 600_000) + "}}", None),
        (COMPLETIONS, "{" + ",".join(f'"k{i}":1' for i in range(100_000)) + "}", None),
        (COMPLETIONS, '{"prompt":"@","bad_words":[' + many('"a"', 300_000) + "]}", "bad_words"),
        (
            COMPLETIONS,
            '{"prompt":"@","bad_words":[' + many(f'"{"a" * 999}"', 99) + "]}",
            "bad_words",
        ),
        (COMPLETIONS, '{"prompt":"@","stop":"' + "a" * 5000 + '"}', "stop"),
        (
            COMPLETIONS,
            '{"prompt":"@","stop_token_ids":[' + many("1", 5000) + "]}",
            "stop_token_ids",
        ),
        (CHAT, '{"messages":[' + many('{"role":"user","content":"a"}', 20_000) + "]}", "messages"),
    ],
    ids=[
        "prompts",
        "values",
        "fields",
        "bad words",
        "their length",
        "stop",
        "stop ids",
        "messages",
    ],
)
def test_huge_bodies_are_refused_before_they_cost_much(
    server: Server, path: str, body: str, param: str | None
) -> None:
    assert error_of(raw(server, path, body))["param"] == param


def test_a_long_conversation_is_rendered_beside_the_loop(server: Server) -> None:
    messages = [{"role": "user", "content": "a"}] * 200
    error = error_of(server.post(CHAT, {"messages": messages}))
    assert error["code"] == "context_length_exceeded"
