"""Shorter reports: request ids, templates from outside, echo, sampling defaults, last words."""

from __future__ import annotations

import concurrent.futures
from pathlib import Path

import httpx
import pytest

from pegainfer_core.testing.tiny import row, script, table_model
from tests.cases.conftest import BARE_TEMPLATE, Serve
from tests.cases.http_server import (
    CHAT,
    COMPLETIONS,
    HttpServer,
    JsonObject,
    decode_events,
)
from tests.cases.serve_process import serve_process

DEFAULTS = {"temperature": 0.7, "top_k": 1, "top_p": 0.9, "repetition_penalty": 1.05}
BOMB = "{% for i in range(1000000000) %}x{% endfor %}"


@pytest.fixture(scope="module")
def shared(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> HttpServer:
    """A checkpoint that brings sampling defaults."""
    table = script("a", ["bcdefgh", 256]) | script("A", ["A"]) | script("B", ["B"])
    table[ord("@")] = row({"x": 2.0, "y": 1.8, "z": 1.6}, others=-40)
    folder = tmp_path_factory.mktemp("leads") / "m"
    table_model(folder, table, chat_template=BARE_TEMPLATE, generation_config=DEFAULTS)
    return serve(folder, settings={"sampling_flags": {"top_p": 0.8}})


# Two live requests with one id that their client chose: internal ids are unique.


@pytest.mark.parametrize("how", ["header", "body"])
def test_equal_ids_at_the_same_time(server: HttpServer, how: str) -> None:
    headers = {"x-request-id": "same"} if how == "header" else {}
    more: JsonObject = {} if how == "header" else {"request_id": "same"}

    def ask(number: int) -> httpx.Response:
        body = {
            "prompt": "AB"[number % 2],
            "max_tokens": 100 + number,
            "temperature": 0,
            "stream": number % 3 == 0,
            **more,
        }
        return httpx.post(server.url + COMPLETIONS, json=body, headers=headers, timeout=60)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(ask, range(8)))
    for number, response in enumerate(responses):
        assert response.headers["x-request-id"] == "same"
        parts = [response.json()] if number % 3 else decode_events(response.content)
        assert {part["id"] for part in parts} == {"cmpl-same"}
        text = "".join(part["choices"][0]["text"] for part in parts)
        assert text == "AB"[number % 2] * (100 + number)


def test_one_of_two_equal_ids_is_aborted(server: HttpServer) -> None:
    body = {"prompt": "A", "max_tokens": 300, "temperature": 0, "request_id": "same"}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        other = pool.submit(server.whole, COMPLETIONS, **body)
        server.wait_for(lambda: server.load()[0] == 1)
        with (
            httpx.Client(base_url=server.url, timeout=60) as client,
            client.stream("POST", COMPLETIONS, json={**body, "stream": True}) as stream,
        ):
            next(stream.iter_bytes())
        assert other.result()["usage"]["completion_tokens"] == 300


# A chat template sent by a client would run unbounded loops in the server.


@pytest.mark.parametrize("path", [CHAT, "/tokenize"])
@pytest.mark.parametrize("name", ["chat_template", "messages", "tools", "add_generation_prompt"])
def test_a_template_from_outside(server: HttpServer, path: str, name: str) -> None:
    messages = [{"role": "user", "content": "a"}]
    inside = {"messages": messages, "chat_template_kwargs": {name: BOMB}}
    error = server.refused(path, inside)
    assert error["param"] == f"chat_template_kwargs.{name}"
    if name == "chat_template":
        error = server.refused(path, {"messages": messages, name: BOMB})
        assert (error["param"], error["code"]) == (name, "unsupported_parameter")


def test_harmless_variables_pass(server: HttpServer) -> None:
    kwargs = {"enable_thinking": False, "custom": [1, {"a": None}]}
    assert server.chat("a", chat_template_kwargs=kwargs).text == "bcdefgh"


# Stream and echo together: the prompt is the first chunk's text.


@pytest.mark.parametrize("fields", [{}, {"logprobs": 1}, {"max_tokens": 0}, {"stop": "d"}])
def test_a_streamed_echo(server: HttpServer, fields: JsonObject) -> None:
    answer = server.complete("xya", echo=True, **fields)
    assert answer.deltas[0] == "xya"
    ends = {"max_tokens": "xya", "stop": "xyabc"}
    assert answer.text == next((ends[name] for name in fields if name in ends), "xyabcdefgh")
    if "logprobs" in fields:
        parts = [chunk["choices"][0]["logprobs"] for chunk in answer.chunks[:-1]]
        for name, values in answer.choice["logprobs"].items():
            assert [item for part in parts for item in part[name]] == values


# Sampling defaults of the checkpoint are applied, and said.


def test_defaults_are_said_at_start(tmp_path: Path) -> None:
    """By the server as it starts; a flag goes before the checkpoint."""
    folder = table_model(tmp_path / "m", {}, generation_config=DEFAULTS)
    flags = ["--sampling-defaults", '{"top_p": 0.8}']
    effective = {**DEFAULTS, "top_p": 0.8}
    with serve_process(folder, *flags, "--in-process", log=tmp_path / "log") as started:
        server = started.wait_ready()
        started.wait_for(lambda: "sampling" in started.output())
        line = next(line for line in started.output().splitlines() if "sampling" in line)
        for name, value in effective.items():
            assert f"{name} {value}" in line
        (card,) = server.get("/v1/models").json()["data"]
        assert card["default_sampling_params"] == effective


def test_defaults_yield_to_what_a_request_says(server: HttpServer) -> None:
    def texts(**fields: object) -> set[str]:
        asked = {"prompt": "@", "max_tokens": 1, **fields}
        return {
            server.whole(COMPLETIONS, **asked, seed=seed)["choices"][0]["text"]
            for seed in range(20)
        }

    assert texts() == texts(top_k=None) == {"x"}
    assert texts(top_k=0, temperature=1, top_p=1) == {"x", "y", "z"}


# The chunk with the finish reason: no text is lost before it or in it.


@pytest.mark.parametrize(
    ("fields", "text", "ending"),
    [
        # The end of the answer could begin a stop string and was held back until then.
        ({"stop": ["ghi"]}, "bcdefgh", ("stop", None)),
        ({"stop": ["efz"], "max_tokens": 5}, "bcdef", ("length", None)),
        ({"stop": ["h"]}, "bcdefg", ("stop", "h")),
        ({"max_tokens": 1}, "b", ("length", None)),
        ({"stop": ["b"]}, "", ("stop", "b")),
    ],
)
def test_the_last_words(
    server: HttpServer, fields: JsonObject, text: str, ending: tuple[str, object]
) -> None:
    answer = server.complete("a", **fields)
    assert (answer.text, answer.ending) == (text, ending)
    chat = server.chat("a", **fields)
    assert (chat.text, chat.ending) == (text, ending)
    # Ours: a chat's finish chunk has an empty delta; a completion's has the last text.
    assert chat.chunks[-2]["choices"][0]["delta"] == {}
