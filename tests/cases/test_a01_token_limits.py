"""A01: the edges of token limits are met at the door, with numbers, and harm nobody.

The rule: what a client asks for must fit the context, or it is refused; a default is shortened to
the room there is.
"""

from __future__ import annotations

from typing import Any

import pytest

from pegainfer_core.testing.tiny import script, table_model
from tests.cases.conftest import BARE_TEMPLATE, Serve
from tests.cases.http_server import CHAT, COMPLETIONS, HttpServer

CONTEXT = 64
LENGTH = ("length", None)


@pytest.fixture(scope="module")
def shared(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> HttpServer:
    """`A` follows `A` for ever; the context is 64 tokens."""
    folder = table_model(
        tmp_path_factory.mktemp("a01") / "model",
        script("A", ["A"]),
        max_position_embeddings=CONTEXT,
        chat_template=BARE_TEMPLATE,
    )
    return serve(folder)


def test_zero_tokens_score_the_prompt(server: HttpServer) -> None:
    answer = server.complete("Hi", max_tokens=0, echo=True, logprobs=1)
    assert answer.text == "Hi"
    assert answer.num_tokens == 0
    logprobs = answer.choice["logprobs"]
    assert logprobs["tokens"] == ["H", "i"]
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["token_logprobs"][1] < 0
    assert answer.ending == LENGTH
    assert server.complete("Hi", max_tokens=0, echo=True).text == "Hi"


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
def test_zero_tokens_of_nothing(server: HttpServer, limit: str) -> None:
    if limit == "max_tokens":
        error = server.refused(COMPLETIONS, {"prompt": "Hi", limit: 0})
        assert error["param"] == limit
    error = server.refused(CHAT, {"messages": [user("Hi")], limit: 0})
    assert limit in error["param"]


def test_completions_default_to_16(server: HttpServer) -> None:
    for fields in ({}, {"max_tokens": None}):
        answer = server.complete("A", **fields)
        assert (answer.num_tokens, answer.ending) == (16, LENGTH)
    # Nobody asked for 16: where there is room for four, it is four.
    assert server.complete("A" * 60).num_tokens == 4


@pytest.mark.parametrize("num_prompt", [1, 33, 63])
def test_chats_fill_the_context(server: HttpServer, num_prompt: int) -> None:
    for fields in ({}, {"max_tokens": None, "max_completion_tokens": None}):
        answer = server.chat("A" * num_prompt, **fields)
        assert (answer.num_tokens, answer.ending) == (CONTEXT - num_prompt, LENGTH)


@pytest.mark.parametrize("asked", [55, 1_000_000, 2**63 - 1, 10**30])
def test_more_than_the_context_holds(server: HttpServer, asked: int) -> None:
    prompt = "A" * 10
    bodies: list[tuple[str, dict[str, Any]]] = [
        (COMPLETIONS, {"prompt": prompt, "max_tokens": asked}),
        (CHAT, {"messages": [user(prompt)], "max_tokens": asked}),
        (CHAT, {"messages": [user(prompt)], "max_completion_tokens": asked}),
    ]
    for path, body in bodies:
        error = server.refused(path, body)
        if asked < 2**63:
            assert error["code"] == "context_length_exceeded"
            assert all(str(number) in error["message"] for number in (10, asked, CONTEXT))
    assert server.complete(prompt, max_tokens=54).num_tokens == 54


@pytest.mark.parametrize("num_prompt", [64, 65, 5000])
def test_prompts_without_room_for_an_answer(server: HttpServer, num_prompt: int) -> None:
    bodies: list[tuple[str, dict[str, Any]]] = [
        (COMPLETIONS, {"prompt": "A" * num_prompt, "max_tokens": 1}),
        (COMPLETIONS, {"prompt": [65] * num_prompt, "max_tokens": 1}),
        (COMPLETIONS, {"prompt": "A" * num_prompt}),
        (CHAT, {"messages": [user("A" * num_prompt)], "max_tokens": 1}),
        (CHAT, {"messages": [user("A" * num_prompt)]}),
    ]
    for path, body in bodies:
        error = server.refused(path, body)
        assert error["code"] == "context_length_exceeded"
        assert error["param"] in ("prompt", "messages")
        assert str(num_prompt) in error["message"] and str(CONTEXT) in error["message"]


def test_a_prompt_with_room_for_one_token(server: HttpServer) -> None:
    answer = server.complete("A" * 63, max_tokens=1)
    assert (answer.text, answer.ending) == ("A", LENGTH)
    assert server.chat("A" * 63, max_tokens=1).text == "A"


def test_a_prompt_that_fills_the_context_can_be_scored(server: HttpServer) -> None:
    answer = server.complete("A" * 64, max_tokens=0, echo=True, logprobs=0)
    assert len(answer.choice["logprobs"]["tokens"]) == 64


def test_two_limits_that_differ_are_refused(server: HttpServer) -> None:
    body = {"messages": [user("A")], "max_tokens": 5, "max_completion_tokens": 7}
    error = server.refused(CHAT, body)
    assert error["param"] == "max_completion_tokens"
    assert "5" in error["message"] and "7" in error["message"]
    assert server.chat("A", max_tokens=5, max_completion_tokens=5).num_tokens == 5
    assert server.chat("A", max_completion_tokens=7).num_tokens == 7


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}
