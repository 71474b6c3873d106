"""Every field of requests, on both endpoints, streamed and not: honoured, or refused by name.

Tools, structured output and adapters have tests of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pegainfer_core.contract import GenerateRequest

from .scripted_engine import chain
from .served import Server, serving
from .test_refusals import error_of

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
BOTH = (COMPLETIONS, CHAT)
CONTEXT = 64
#: What the model says to anything that ends in `@`.
ANSWER = "ok."
Json = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What came back, the same streamed and whole, and what the engine was asked."""

    text: str
    choice: Json
    usage: Json
    body: Json
    request: GenerateRequest


@dataclass(frozen=True)
class Honoured:
    """The answer is 200 and passes a check."""

    check: Callable[[Answer], bool]


@dataclass(frozen=True)
class Refused:
    """The answer is an error."""

    code: str = "invalid_value"
    param: str | None = None
    status: int = 400


def param(name: str, value: object) -> Honoured:
    """The engine gets a sampling parameter."""
    return Honoured(lambda answer: getattr(answer.request.params, name) == value)


def says(text: str) -> Honoured:
    return Honoured(lambda answer: answer.text == text)


Row = tuple[str, tuple[str, ...], Json, Honoured | Refused]
UNSUPPORTED = Refused("unsupported_parameter")
TOO_LONG = Refused("context_length_exceeded", "prompt")
ROWS: list[Row] = [
    ("model", BOTH, {}, Honoured(lambda a: a.body["model"] == "m")),
    ("model", BOTH, {"model": "m"}, says(ANSWER)),
    ("model", BOTH, {"model": "x"}, Refused("model_not_found", "model", 404)),
    ("prompt", (COMPLETIONS,), {"prompt": [64]}, says(ANSWER)),
    ("prompt", (COMPLETIONS,), {"prompt": ["@"]}, says(ANSWER)),
    ("prompt", (COMPLETIONS,), {"prompt": [[64]]}, says(ANSWER)),
    ("prompt", (COMPLETIONS,), {"prompt": ["@", 64]}, Refused(param="prompt")),
    ("prompt", (COMPLETIONS,), {"prompt": ["@", ""]}, Refused(param="prompt[1]")),
    ("max_tokens", (COMPLETIONS,), {}, param("max_tokens", 16)),
    ("max_tokens", (COMPLETIONS,), {"max_tokens": None}, param("max_tokens", 16)),
    ("max_tokens", (COMPLETIONS,), {"max_tokens": 0}, Refused(param="max_tokens")),
    ("max_tokens", (COMPLETIONS,), {"max_tokens": 0, "echo": True}, says("@")),
    ("max_tokens", (COMPLETIONS,), {"max_tokens": CONTEXT}, TOO_LONG),
    ("max_tokens", (CHAT,), {}, param("max_tokens", None)),
    ("max_tokens", (CHAT,), {"max_tokens": 2}, says("ok")),
    ("max_tokens", (CHAT,), {"max_tokens": 0}, Refused(param="$.max_tokens")),
    ("max_completion_tokens", (CHAT,), {"max_completion_tokens": 1}, says("o")),
    (
        "max_completion_tokens",
        (CHAT,),
        {"max_completion_tokens": 1, "max_tokens": 2},
        Refused(param="max_completion_tokens"),
    ),
    ("temperature", BOTH, {}, param("temperature", 1.0)),
    ("temperature", BOTH, {"temperature": 0}, param("temperature", 0)),
    ("temperature", BOTH, {"temperature": -1}, Refused(param="temperature")),
    ("top_p", BOTH, {}, param("top_p", 1.0)),
    ("top_p", BOTH, {"top_p": 0.5}, param("top_p", 0.5)),
    ("top_k", BOTH, {}, param("top_k", 0)),
    ("top_k", BOTH, {"top_k": -1}, param("top_k", -1)),
    ("min_p", BOTH, {}, param("min_p", 0.0)),
    ("min_p", BOTH, {"min_p": 1.5}, Refused(param="min_p")),
    ("seed", BOTH, {"seed": 2**63 - 1}, param("seed", 2**63 - 1)),
    ("frequency_penalty", BOTH, {"frequency_penalty": 1}, param("frequency_penalty", 1)),
    ("presence_penalty", BOTH, {"presence_penalty": -1}, param("presence_penalty", -1)),
    ("repetition_penalty", BOTH, {"repetition_penalty": 1.2}, param("repetition_penalty", 1.2)),
    ("logit_bias", BOTH, {"logit_bias": {"65": -3}}, param("logit_bias", {65: -3.0})),
    ("logit_bias", BOTH, {"logit_bias": {"A": 1}}, Refused(param="logit_bias")),
    ("stop", BOTH, {"stop": "k"}, says("o")),
    ("stop", BOTH, {"stop": ["x", "k."]}, says("o")),
    ("stop", BOTH, {"stop": [""]}, Refused(param="stop")),
    ("stop", BOTH, {"stop": ["x"] * 17}, Refused(param="stop")),
    (
        "include_stop_str_in_output",
        BOTH,
        {"stop": "k", "include_stop_str_in_output": True},
        says("ok"),
    ),
    (
        "stop_token_ids",
        BOTH,
        {"stop_token_ids": [107]},
        Honoured(lambda a: (a.text, a.choice["stop_reason"]) == ("o", 107)),
    ),
    (
        "ignore_eos",
        BOTH,
        {"ignore_eos": True, "max_tokens": 6},
        Honoured(lambda a: a.choice["finish_reason"] == "length"),
    ),
    ("min_tokens", BOTH, {"min_tokens": 2}, param("min_tokens", 2)),
    ("n", BOTH, {"n": 2}, Honoured(lambda a: len(a.body["choices"]) == 2)),
    ("n", BOTH, {"n": 257}, Refused(param="n")),
    ("best_of", BOTH, {"best_of": 1}, says(ANSWER)),
    ("best_of", BOTH, {"best_of": 2}, UNSUPPORTED),
    ("best_of", BOTH, {"n": 2, "best_of": 2}, says(ANSWER)),
    ("echo", (COMPLETIONS,), {"echo": True}, says(f"@{ANSWER}")),
    (
        "echo",
        (COMPLETIONS,),
        {"echo": True, "logprobs": 1, "max_tokens": 1},
        Honoured(lambda a: a.choice["logprobs"]["tokens"] == ["@", "o"]),
    ),
    ("echo", (CHAT,), {"echo": True}, UNSUPPORTED),
    ("suffix", BOTH, {"suffix": "x"}, UNSUPPORTED),
    (
        "logprobs",
        (COMPLETIONS,),
        {"logprobs": 2},
        Honoured(lambda a: [len(top) for top in a.choice["logprobs"]["top_logprobs"]] == [2] * 4),
    ),
    ("logprobs", (COMPLETIONS,), {"logprobs": 21}, Refused(param="logprobs")),
    (
        "top_logprobs",
        (CHAT,),
        {"logprobs": True, "top_logprobs": 2},
        Honoured(lambda a: len(a.choice["logprobs"]["content"][0]["top_logprobs"]) == 2),
    ),
    ("top_logprobs", (CHAT,), {"top_logprobs": 2}, Refused(param="top_logprobs")),
    (
        "top_logprobs",
        (CHAT,),
        {"logprobs": True, "top_logprobs": 21},
        Refused(param="top_logprobs"),
    ),
    ("reasoning", (CHAT,), {"include_reasoning": True, "separate_reasoning": True}, says(ANSWER)),
    (
        "chat_template_kwargs",
        (CHAT,),
        {"chat_template_kwargs": {"mark": "m"}, "echo": False},
        Honoured(lambda a: bytes(a.request.prompt_token_ids) == b"[user]hi>m@"),
    ),
    (
        "reasoning_effort",
        (CHAT,),
        {"reasoning_effort": "none"},
        Honoured(lambda a: bytes(a.request.prompt_token_ids) == b"[user]hi>off@"),
    ),
    ("reasoning_effort", (CHAT,), {"reasoning_effort": "x"}, Refused(param="reasoning_effort")),
    (
        "add_generation_prompt",
        (CHAT,),
        {"add_generation_prompt": False},
        Honoured(lambda a: bytes(a.request.prompt_token_ids) == b"[user]hi@"),
    ),
    (
        "continue_final_message",
        (CHAT,),
        {"continue_final_message": True},
        Honoured(lambda a: bytes(a.request.prompt_token_ids) == b"[user]hi"),
    ),
    (
        "continue_final_message",
        (CHAT,),
        {"continue_final_message": True, "add_generation_prompt": True},
        Refused(param="continue_final_message"),
    ),
    ("chat_template", BOTH, {"chat_template": "x"}, UNSUPPORTED),
    (
        "stream_options",
        BOTH,
        {"skip_special_tokens": True, "stream_options": None},
        says(ANSWER),
    ),
    (
        "skip_special_tokens",
        BOTH,
        {"skip_special_tokens": False, "ignore_eos": True, "max_tokens": 4},
        says(f"{ANSWER}<eos>"),
    ),
    ("add_special_tokens", BOTH, {"add_special_tokens": False}, says(ANSWER)),
    (
        "truncate_prompt_tokens",
        (COMPLETIONS,),
        {"prompt": "abc@", "truncate_prompt_tokens": 2},
        Honoured(lambda a: a.request.prompt_token_ids == [*b"c@"]),
    ),
    (
        "truncate_prompt_tokens",
        (COMPLETIONS,),
        {"prompt": "@" * 99, "truncate_prompt_tokens": -1, "max_tokens": 4},
        Honoured(lambda a: len(a.request.prompt_token_ids) == CONTEXT - 4),
    ),
    ("truncate_prompt_tokens", BOTH, {"truncate_prompt_tokens": -2},
     Refused(param="$.truncate_prompt_tokens")),
    (
        "return_token_ids",
        BOTH,
        {"return_token_ids": True},
        Honoured(lambda a: a.choice["token_ids"] == [*ANSWER.encode(), 256]),
    ),
    (
        "return_tokens_as_token_ids",
        (COMPLETIONS,),
        {"return_tokens_as_token_ids": True, "logprobs": 0},
        Honoured(lambda a: a.choice["logprobs"]["tokens"][0] == "token_id:111"),
    ),
    (
        "request_id",
        BOTH,
        {"request_id": "mine"},
        Honoured(lambda a: a.body["id"].endswith("-mine") and a.request.external_id == "mine"),
    ),
    ("request_id", BOTH, {"request_id": "a b"}, Refused(param="request_id")),
    ("cache_salt", BOTH, {"cache_salt": "s"}, Honoured(lambda a: a.request.cache_salt == "s")),
    ("cache_salt", BOTH, {"cache_salt": "s" * 1025}, Refused(param="$.cache_salt")),
    ("priority", BOTH, {"priority": 3}, Honoured(lambda a: a.request.priority == 3)),
    ("user", BOTH, {"user": "u", "never_heard_of": 1}, says(ANSWER)),
    ("use_beam_search", BOTH, {"use_beam_search": True}, UNSUPPORTED),
    ("documents", BOTH, {"documents": [{}]}, UNSUPPORTED),
    ("typical_p", BOTH, {"typical_p": 0.5}, UNSUPPORTED),
    ("truncation_side", BOTH, {"truncation_side": "right"}, UNSUPPORTED),
    ("truncation_side", BOTH, {"truncation_side": "left"}, says(ANSWER)),
    ("logprob_token_ids", BOTH, {"logprob_token_ids": [1]}, UNSUPPORTED),
    ("vllm_xargs", BOTH, {"vllm_xargs": {"a": 1}}, UNSUPPORTED),
    ("vllm_xargs", BOTH, {"vllm_xargs": {}}, says(ANSWER)),
    ("repeat_penalty", BOTH, {"repeat_penalty": 1.1}, UNSUPPORTED),
    ("repeat_penalty", BOTH, {"repeat_penalty": 1}, says(ANSWER)),
    ("max_new_tokens", BOTH, {"max_new_tokens": 5}, UNSUPPORTED),
    ("n_predict", BOTH, {"n_predict": 5}, UNSUPPORTED),
    ("max_completion_tokens", (COMPLETIONS,), {"max_completion_tokens": 5}, UNSUPPORTED),
    ("top_logprobs", (COMPLETIONS,), {"top_logprobs": 5}, UNSUPPORTED),
    ("top_logprobs", (COMPLETIONS,), {"top_logprobs": 0}, says(ANSWER)),
    ("reasoning_effort", (COMPLETIONS,), {"reasoning_effort": "none"}, UNSUPPORTED),
    ("chat_template_kwargs", (COMPLETIONS,), {"chat_template_kwargs": {"a": 1}}, UNSUPPORTED),
    ("continue_final_message", (COMPLETIONS,), {"continue_final_message": True}, UNSUPPORTED),
    ("add_generation_prompt", (COMPLETIONS,), {"add_generation_prompt": True}, says(ANSWER)),
]  # fmt: skip

CASES = [
    pytest.param(path, fields, expected, id=f"{name}-{path.split('/')[2]}-{number}")
    for number, (name, paths, fields, expected) in enumerate(ROWS)
    for path in paths
]
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}>{% endif %}{{ mark }}"
    "{% if enable_thinking is false %}off{% endif %}@"
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("table") / "m"
    with serving(folder, max_model_len=CONTEXT, chat_template=TEMPLATE) as server:
        yield server


def base(path: str) -> Json:
    if path == COMPLETIONS:
        return {"prompt": "@"}
    return {"messages": [{"role": "user", "content": "hi"}]}


def joined(chunks: list[Json], path: str) -> str:
    first = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    parts = [choice for choice in first if choice["index"] == 0]
    if path == COMPLETIONS:
        return "".join(choice["text"] for choice in parts)
    return "".join(choice["delta"].get("content", "") for choice in parts)


@pytest.mark.parametrize(("path", "fields", "expected"), CASES)
def test_row(server: Server, path: str, fields: Json, expected: Honoured | Refused) -> None:
    server.script.table = chain("@", *ANSWER, 256)
    server.script.default = ord("@")
    body = {**base(path), **fields}
    if isinstance(expected, Refused):
        for stream in (False, True):
            error = error_of(server.post(path, {**body, "stream": stream}), expected.status)
            assert error["code"] == expected.code
            assert error["param"] == (expected.param or next(iter(fields)))
        return
    whole = server.post(path, body)
    assert whole.status_code == 200, whole.text
    answer = whole.json()
    choice = answer["choices"][0]
    text = choice["text"] if path == COMPLETIONS else choice["message"]["content"]
    streams = {**body, "stream_options": {"include_usage": True}}
    *chunks, last = server.events(path, **streams)
    assert joined(chunks, path) == text
    assert last["usage"] == answer["usage"]
    if "request_id" in fields:
        assert whole.headers["x-request-id"] == fields["request_id"]
    request = server.script.requests[0]
    assert expected.check(Answer(text, choice, answer["usage"], answer, request))


@pytest.mark.parametrize("path", BOTH)
def test_prompt_logprobs_are_shown_whole_and_not_streamed(server: Server, path: str) -> None:
    body = {**base(path), "prompt_logprobs": 1, "max_tokens": 1}
    answer = server.post(path, body).json()
    found = answer["choices"][0] if path == COMPLETIONS else answer
    prompt = server.script.requests[0].prompt_token_ids
    assert [None if each is None else len(each) for each in found["prompt_logprobs"]] == [
        None, *[1] * (len(prompt) - 1),
    ]  # fmt: skip
    assert error_of(server.post(path, {**body, "stream": True}))["param"] == "prompt_logprobs"


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize(
    ("options", "with_usage"),
    [
        (None, "none"),
        ({}, "none"),
        ({"include_usage": False}, "none"),
        ({"continuous_usage_stats": True}, "none"),
        ({"include_usage": True}, "last"),
        ({"include_usage": True, "continuous_usage_stats": True}, "all"),
    ],
)
def test_usage_of_streams(server: Server, path: str, options: Json | None, with_usage: str) -> None:
    server.script.table = chain("@", *ANSWER, 256)
    chunks = server.events(path, **base(path), stream_options=options)
    shown = ["usage" in chunk for chunk in chunks]
    if with_usage == "all" and path == CHAT:
        shown = shown[1:]  # The role's event comes before anything was counted.
    assert (
        shown
        == {
            "none": [False] * len(shown),
            "last": [*[False] * (len(shown) - 1), True],
            "all": [True] * len(shown),
        }[with_usage]
    )
    assert error_of(server.post(path, {**base(path), "stream_options": {}}))["param"] == (
        "stream_options"
    )


def test_the_header_wins_over_the_body(server: Server) -> None:
    for path in BOTH:
        body = {**base(path), "request_id": "body", "max_tokens": 1}
        response = server.post(path, body, headers={"x-request-id": "header"})
        assert response.headers["x-request-id"] == "header"
        assert response.json()["id"].endswith("-header")
