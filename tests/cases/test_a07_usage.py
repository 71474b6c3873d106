"""A07: usage comes when asked for, once, and tells the same in both modes."""

from __future__ import annotations

from typing import Any

import pytest

from pegainfer_core.testing.tiny import tiny_qwen3
from tests.cases.conftest import BARE_TEMPLATE, Serve
from tests.cases.http_server import CHAT, COMPLETIONS, HttpServer, JsonObject

PAGE = 16
NUM_PROMPT = 3 * PAGE + 1


@pytest.fixture(scope="module")
def shared(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> HttpServer:
    folder = tmp_path_factory.mktemp("a07") / "model"
    return serve(tiny_qwen3(folder, vocab=1024, chat_template=BARE_TEMPLATE))


@pytest.fixture(params=[COMPLETIONS, CHAT])
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def asking(path: str, text: str, **fields: Any) -> JsonObject:
    prompt = (
        {"prompt": text}
        if path == COMPLETIONS
        else {"messages": [{"role": "user", "content": text}]}
    )
    return {**prompt, "temperature": 0, "max_tokens": 4, "ignore_eos": True, **fields}


@pytest.mark.parametrize(
    "options", [None, {}, {"include_usage": False}, {"include_usage": None}, "absent"]
)
def test_a_stream_without_usage(server: HttpServer, path: str, options: object) -> None:
    more = {} if options == "absent" else {"stream_options": options}
    for event in server.events(path, **asking(path, "Hi", **more)):
        assert event["choices"]
        assert event.get("usage") is None


def test_a_stream_with_usage(server: HttpServer, path: str) -> None:
    fields = asking(path, "Hi")
    *events, last = server.events(path, **fields, stream_options={"include_usage": True})
    assert events[-1]["choices"][0]["finish_reason"] == "length"
    assert all(event["choices"] and event.get("usage") is None for event in events)
    assert last["choices"] == []
    assert last["usage"] == server.whole(path, **fields)["usage"]
    assert last["usage"]["prompt_tokens"] == 2
    assert last["usage"]["completion_tokens"] == 4
    assert last["usage"]["total_tokens"] == 6
    assert {event["id"] for event in events} == {last["id"]}


def test_usage_of_every_chunk_when_asked_for(server: HttpServer, path: str) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    *events, last = server.events(path, **asking(path, "Hi"), stream_options=options)
    counts = [event["usage"]["completion_tokens"] for event in events if event.get("usage")]
    assert counts == sorted(counts) and counts[-1] == last["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("options", [{}, {"include_usage": True}, {"include_usage": False}])
def test_stream_options_without_a_stream(server: HttpServer, path: str, options: object) -> None:
    for more in ({}, {"stream": False}):
        response = server.post(path, asking(path, "Hi", stream_options=options, **more))
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "stream_options"


@pytest.mark.parametrize("streamed", [False, True])
def test_cached_tokens(server: HttpServer, path: str, streamed: bool) -> None:
    """The second of two equal prompts finds all pages but that of its last token."""
    text = f"{streamed} {path} ".ljust(NUM_PROMPT, ".")
    usages = []
    for _ in range(2):
        if streamed:
            options = {"include_usage": True}
            events = server.events(path, **asking(path, text), stream_options=options)
            usages.append(events[-1]["usage"])
        else:
            usages.append(server.whole(path, **asking(path, text))["usage"])
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
    assert cached == [0, 3 * PAGE]
    assert [usage["prompt_tokens"] for usage in usages] == [NUM_PROMPT, NUM_PROMPT]
    assert [usage["total_tokens"] for usage in usages] == [NUM_PROMPT + 4] * 2


def test_a_streamed_answer_warms_the_cache_like_any_other(server: HttpServer) -> None:
    prompt = list(range(PAGE + 5))
    fields: JsonObject = {"max_tokens": 2 * PAGE, "temperature": 0, "ignore_eos": True}
    events = server.events(COMPLETIONS, prompt=prompt, **fields, return_token_ids=True)
    answer = [i for event in events for i in event["choices"][0]["token_ids"]]
    usage = server.whole(COMPLETIONS, prompt=prompt + answer, **fields)["usage"]
    # The last generated token was never an input: its KV does not exist.
    known = len(prompt) + len(answer) - 1
    assert usage["prompt_tokens_details"]["cached_tokens"] == known // PAGE * PAGE
