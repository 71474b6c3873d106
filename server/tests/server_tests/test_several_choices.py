"""Several answers to one request: samples (`n`), several prompts, and both."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import openai
import pytest

from .raw_http import RawConnection
from .scripted_engine import Script, chain
from .served import Server, serving
from .test_disconnect import assert_back_to_rest, body
from .test_refusals import error_of

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hey"}]
USAGE = {"stream_options": {"include_usage": True}}


def streamed(server: Server, path: str, **fields: object) -> tuple[list[str], dict[str, Any]]:
    """Texts by index, and the usage; every choice must end exactly once."""
    *chunks, last = server.events(path, **fields, **USAGE)
    assert last["choices"] == []
    assert len({(chunk["id"], chunk["created"]) for chunk in (*chunks, last)}) == 1
    texts: dict[int, str] = {}
    ended: list[int] = []
    for chunk in chunks:
        (choice,) = chunk["choices"]
        index = choice["index"]
        assert index not in ended, "an event behind the ending"
        delta = choice.get("delta", {"content": choice.get("text")})
        texts[index] = texts.get(index, "") + (delta.get("content") or "")
        if choice["finish_reason"] is not None:
            ended.append(index)
    assert sorted(ended) == sorted(texts) == list(range(len(texts)))
    usage: dict[str, Any] = last["usage"]
    return [texts[index] for index in range(len(texts))], usage


def test_prompts_are_answered_in_order(server: Server) -> None:
    server.script.table = {**chain("a", "x", "y", 256), **chain("b", "z", 256)}
    answer = server.complete(["a", "b"], max_tokens=8)
    choices = answer["choices"]
    assert [(c["index"], c["text"], c["finish_reason"]) for c in choices] == [
        (0, "xy", "stop"),
        (1, "z", "stop"),
    ]
    assert answer["usage"]["prompt_tokens"] == 2
    assert answer["usage"]["completion_tokens"] == 5
    assert streamed(server, COMPLETIONS, prompt=["a", "b"]) == (["xy", "z"], answer["usage"])
    by_ids = server.complete([[97], [98]], max_tokens=8, return_token_ids=True)
    assert [c["text"] for c in by_ids["choices"]] == ["xy", "z"]
    assert [c["prompt_token_ids"] for c in by_ids["choices"]] == [[97], [98]]
    assert [c["token_ids"] for c in by_ids["choices"]] == [[*b"xy", 256], [*b"z", 256]]


def test_samples_have_indices_behind_those_of_earlier_prompts(server: Server) -> None:
    server.script.table = {**chain("a", "x", 256), **chain("b", "z", 256)}
    fields: dict[str, Any] = {"prompt": ["a", "b"], "n": 2, "best_of": 2, "seed": 5}
    answer = server.complete(**fields)
    assert [(c["index"], c["text"]) for c in answer["choices"]] == [
        (0, "x"), (1, "x"), (2, "z"), (3, "z"),
    ]  # fmt: skip
    assert [request.sample_index for request in server.script.requests] == [0, 1, 0, 1]
    assert {request.params.seed for request in server.script.requests} == {5}
    # A prompt counts once, its samples each.
    assert answer["usage"]["prompt_tokens"] == 2
    assert answer["usage"]["completion_tokens"] == 8
    assert streamed(server, COMPLETIONS, **fields) == (["x", "x", "z", "z"], answer["usage"])


def test_chats_have_samples(server: Server) -> None:
    server.script.table = chain(">", *"héy".encode(), 256)
    body = {"messages": MESSAGES, "n": 3, "logprobs": True, "top_logprobs": 1}
    answer = server.post(CHAT, body).json()
    choices = answer["choices"]
    assert [(c["index"], c["message"]["content"]) for c in choices] == [
        (i, "héy") for i in range(3)
    ]
    assert all(len(c["logprobs"]["content"]) == 5 for c in choices)
    assert streamed(server, CHAT, **body) == (["héy"] * 3, answer["usage"])
    roles = [c["choices"][0]["delta"].get("role") for c in server.events(CHAT, **body)]
    assert roles[:3] == ["assistant"] * 3 and set(roles[3:]) == {None}


def test_usage_so_far_is_that_of_its_choice(server: Server) -> None:
    server.script.step_s = 0.005
    server.script.table = chain("a", "x", "y", 256)
    options = {"include_usage": True, "continuous_usage_stats": True}
    *chunks, last = server.events(COMPLETIONS, prompt="a", n=2, stream_options=options)
    seen: dict[int, list[int]] = {0: [], 1: []}
    for chunk in chunks:
        seen[chunk["choices"][0]["index"]].append(chunk["usage"]["completion_tokens"])
    assert seen == {0: [1, 2, 3], 1: [1, 2, 3]}
    assert last["usage"]["completion_tokens"] == 6


def test_echo_and_scores_of_several_prompts(server: Server) -> None:
    answer = server.complete(["ab", "c"], echo=True, logprobs=1, max_tokens=0)
    tokens = [choice["logprobs"]["tokens"] for choice in answer["choices"]]
    assert tokens == [["a", "b"], ["c"]]
    assert [choice["text"] for choice in answer["choices"]] == ["ab", "c"]
    assert [choice["logprobs"]["token_logprobs"][0] for choice in answer["choices"]] == [None, None]
    assert answer["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize("stream", [False, True])
def test_one_bad_prompt_fails_the_whole(server: Server, stream: bool) -> None:
    before = len(server.script.requests)
    for prompts, field in (
        (["a", ""], "prompt[1]"),
        ([[65], []], "prompt[1]"),
        ([[65], [5000]], "prompt[1]"),
        (["a", "b" * 5000], "prompt[1]"),
        (["a", [65]], "prompt"),
    ):
        error = error_of(server.post(COMPLETIONS, {"prompt": prompts, "stream": stream}))
        assert error["param"] == field
    assert len(server.script.requests) == before, "none of them was begun"


def test_what_the_engine_refuses_is_refused_as_a_whole(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    for stream in (False, True):
        fields = {"prompt": ["a", "b"], "n": 2, "temperature": -1, "stream": stream}
        assert error_of(server.post(COMPLETIONS, fields))["param"] == "temperature"
    server.wait_for(lambda: server.state.num_open == 0, 2)
    gc.collect()
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": "a", "n": 257}, "n"),
        ({"prompt": ["a"] * 257}, "prompt"),
        ({"prompt": ["a"] * 129, "n": 2}, "n"),
    ],
)
def test_too_many_are_refused(server: Server, fields: dict[str, Any], param: str) -> None:
    error = error_of(server.post(COMPLETIONS, fields))
    assert error["param"] == param
    assert "256" in error["message"]


def test_the_queue_takes_all_or_none(folder: Path) -> None:
    script = Script(table={97: 97}, max_num_seqs=2, hold=True)
    with serving(folder, script, max_queue=2) as server:
        refused = error_of(server.post(COMPLETIONS, {"prompt": "a", "n": 5}))
        assert (refused["param"], "at most 4" in refused["message"]) == ("n", True)
        with RawConnection(server.address) as connection:
            connection.post(COMPLETIONS, {"prompt": "a", "n": 3, "max_tokens": 4000})
            server.wait_for(lambda: server.state.num_open == 3)
            error_of(server.post(COMPLETIONS, {"prompt": "a", "n": 2}), 429)
            assert server.state.num_open == 3
        script.hold = False
        server.wait_for(lambda: server.state.num_open == 0, 2)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_stops_all(folder: Path, stream: bool) -> None:
    script = Script(table={ord("A"): ord("A")}, step_s=0.002)
    with serving(folder, script) as server:
        for count in range(1, 3):
            with RawConnection(server.address) as connection:
                # A prompt of several pages: three samples wait for the first one's first token.
                prompt = "A" * (1 if count == 2 else 50)
                connection.post(COMPLETIONS, {**body(stream), "prompt": prompt, "n": 4})
                if stream:
                    assert connection.read_head()[0] == 200
                    assert connection.read_chunk()
                else:
                    server.wait_for(lambda: server.metric("num_requests_running") >= 1)
            server.wait_for(lambda: server.state.num_open == 0, 2)
            assert len(server.records) == 4 * count
        assert_back_to_rest(server, num_aborted(server))
        assert {record.finish_reason for record in server.records} == {"abort"}


def num_aborted(server: Server) -> int:
    return int(server.metric("request_success_total", finished_reason="abort"))


def test_samples_that_wait_for_the_first_are_aborted_too(folder: Path) -> None:
    script = Script(table={ord("A"): ord("A")}, hold_prefill=True)
    with serving(folder, script) as server:
        with RawConnection(server.address) as connection:
            connection.post(COMPLETIONS, {**body(True), "prompt": "A" * 50, "n": 4})
            server.wait_for(lambda: server.state.num_open == 4)
            server.wait_for(lambda: len(script.requests) == 1)
        server.wait_for(lambda: server.state.num_open == 0, 2)
        assert len(script.requests) == 1
        assert [record.finish_reason for record in server.records] == ["abort"] * 4


def test_an_engine_that_dies_ends_waiting_samples_too(folder: Path) -> None:
    script = Script(table={ord("A"): ord("A")}, hold_prefill=True)
    with serving(folder, script) as server:
        with RawConnection(server.address) as connection:
            connection.post(COMPLETIONS, {**body(False), "prompt": "A" * 50, "n": 4})
            server.wait_for(lambda: server.state.num_open == 4)
            script.fault = RuntimeError("lost")
            assert connection.read_head()[0] == 500
        server.wait_for(lambda: server.state.num_open == 0, 2)


def test_a_failure_ends_the_stream_of_all(folder: Path) -> None:
    script = Script(table={ord("A"): ord("A")}, step_s=0.005)
    with serving(folder, script) as server, RawConnection(server.address) as connection:
        connection.post(COMPLETIONS, {**body(True), "n": 3})
        assert connection.read_head()[0] == 200
        assert connection.read_chunk()
        script.fault = RuntimeError("lost")
        *_, last = connection.read_chunks()
        assert b'"internal_error"' in last and last.endswith(b"data: [DONE]\n\n")
        server.wait_for(lambda: server.state.num_open == 0, 2)


def test_a_client_that_does_not_read_is_cut_off(folder: Path) -> None:
    script = Script(table={ord("A"): ord("A")}, tokens_per_step=20_000)
    with serving(folder, script, max_model_len=4_000_000) as server:
        with RawConnection(server.address, receive_bytes=4096) as connection:
            fields = {**body(True), "max_tokens": 3_000_000, "n": 3}
            connection.post(COMPLETIONS, fields)
            server.wait_for(lambda: server.state.num_open == 3)
            server.wait_for(lambda: server.state.num_open == 0, 20)
        assert server.metric("slow_reader_aborts_total") >= 1
        server.wait_for(lambda: server.metric("num_requests_running") == 0)


def test_the_official_clients(server: Server) -> None:
    server.script.table = {**chain(">", "h", "i", 256), **chain("@", "o", "k", 256)}

    async def ask() -> tuple[list[str], list[str]]:
        url = f"{server.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            whole = await client.completions.create(model="m", prompt=["@", "@"], n=2)
            stream = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hey"}], n=2, stream=True
            )
            texts = ["", ""]
            async for chunk in stream:
                texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
            return [choice.text for choice in whole.choices], texts

    assert asyncio.run(ask()) == (["ok"] * 4, ["hi"] * 2)
