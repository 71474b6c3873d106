"""Answers with a form over HTTP: both endpoints, streamed or not, beside others; refusals."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from pegainfer_core.testing.tiny import tiny_qwen3
from tests.cases.http_server import CHAT, COMPLETIONS, HttpServer, error_of

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 4, "pattern": "^[a-z]*$"},
        "size": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {"enum": ["x", "y"]},
    },
    "required": ["name", "size", "kind"],
    "additionalProperties": False,
}
TEMPLATE = (
    "{% for m in messages %}{{ m.content }}{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
)
NO_THINKING = {"enable_thinking": False}
MESSAGES = [{"role": "user", "content": "hello"}]
TOOL = {
    "type": "function",
    "function": {"name": "put", "parameters": SCHEMA, "description": "Puts."},
}
OTHER = {
    "type": "function",
    "function": {"name": "end", "parameters": {"type": "object", "additionalProperties": False}},
}


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, serve: Callable[..., HttpServer]
) -> HttpServer:
    folder = tiny_qwen3(
        tmp_path_factory.mktemp("tiny") / "model", vocab=300, chat_template=TEMPLATE
    )
    return serve(folder, max_num_seqs=16)


@pytest.fixture(autouse=True)
def unharmed(server: HttpServer) -> None:
    """Every test leaves the server as it was; see `server`."""


def format_of(schema: object, **fields: object) -> dict[str, object]:
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": schema, **fields}}


def fits(text: str) -> bool:
    value = json.loads(text)
    return (
        value.keys() == SCHEMA["properties"].keys()
        and re.fullmatch("[a-z]{0,4}", value["name"]) is not None
        and type(value["size"]) is int
        and 0 <= value["size"] <= 99
        and value["kind"] in ("x", "y")
    )


def test_completions_are_json_of_the_schema(server: HttpServer) -> None:
    answer = server.complete("a", max_tokens=400, response_format=format_of(SCHEMA))
    assert fits(answer.text) and answer.ending == ("stop", None)
    assert answer.num_tokens == len(answer.text.encode()) + 1


def test_chats_are_json_of_the_schema_at_any_temperature(server: HttpServer) -> None:
    fields = {"max_tokens": 600, "chat_template_kwargs": NO_THINKING}
    for seed in range(2):
        answer = server.chat(
            "b", response_format=format_of(SCHEMA), temperature=1.5, seed=seed, **fields
        )
        assert fits(answer.text) and answer.ending == ("stop", None)


FORMS: list[tuple[dict[str, Any], str | None]] = [
    ({"guided_json": SCHEMA}, None),
    ({"guided_json": json.dumps(SCHEMA)}, None),
    ({"structured_outputs": {"json": SCHEMA}}, None),
    ({"guided_regex": "[ab]{3}(x|y)"}, "[ab]{3}(x|y)"),
    ({"structured_outputs": {"regex": "[0-9]{2}-[0-9]"}}, "[0-9]{2}-[0-9]"),
    ({"guided_choice": ["left", "right"]}, "left|right"),
    ({"structured_outputs": {"choice": ["ü", "ö"]}}, "ü|ö"),
    ({"guided_grammar": 'start: "<" /[a-c]/ ">"'}, "<[a-c]>"),
    ({"structured_outputs": {"grammar": 'start: "q" | "r"'}}, "q|r"),
]


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_other_forms(server: HttpServer, path: str) -> None:
    prompt: dict[str, Any] = {"prompt": "a"}
    if path == CHAT:
        prompt = {"messages": MESSAGES, "chat_template_kwargs": NO_THINKING}
    for fields, pattern in FORMS:
        body = server.whole(path, **prompt, **fields, max_tokens=400, temperature=1, seed=3)
        choice = body["choices"][0]
        text = choice["text"] if path == COMPLETIONS else choice["message"]["content"]
        assert choice["finish_reason"] == "stop"
        assert fits(text) if pattern is None else re.fullmatch(pattern, text), text


def test_any_object_or_its_beginning(server: HttpServer) -> None:
    for seed in range(2):
        body = server.whole(
            COMPLETIONS, prompt="a", max_tokens=60, temperature=1, seed=seed,
            response_format={"type": "json_object"},
        )  # fmt: skip
        choice = body["choices"][0]
        assert choice["text"].startswith("{")
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(choice["text"]), dict)
        else:
            assert choice["finish_reason"] == "length"


def test_with_everything_else_that_chooses(server: HttpServer) -> None:
    body = server.whole(
        COMPLETIONS, prompt="a", max_tokens=400, response_format=format_of(SCHEMA), temperature=1.2,
        seed=1, n=3, frequency_penalty=0.5, presence_penalty=0.2, repetition_penalty=1.1,
        logit_bias={"120": 5}, min_tokens=30, logprobs=2, top_p=0.9, top_k=40, min_p=0.01,
        return_token_ids=True, ignore_eos=True,
    )  # fmt: skip
    texts = [choice["text"] for choice in body["choices"]]
    assert all(map(fits, texts)) and len(set(texts)) > 1
    for choice in body["choices"]:
        assert choice["finish_reason"] == "stop"
        assert len(choice["logprobs"]["tokens"]) == len(choice["token_ids"])


def test_a_stop_string_and_a_limit_cut_the_form(server: HttpServer) -> None:
    cut = server.complete("a", max_tokens=400, response_format=format_of(SCHEMA), stop='"size"')
    assert cut.ending == ("stop", '"size"') and '"size"' not in cut.text
    short = server.complete("a", max_tokens=5, response_format=format_of(SCHEMA))
    assert short.ending == ("length", None) and len(short.text) == 5


def test_the_form_begins_behind_reasoning(server: HttpServer) -> None:
    """Which the model may begin or leave out; with thinking off it may not."""
    reasoned = 0
    for seed in range(4):
        answer = server.chat(
            "c", max_tokens=300, guided_choice=["left", "right"], temperature=1, seed=seed,
            logit_bias={"258": 20, "259": 18} if seed % 2 else {},
        )  # fmt: skip
        message = answer.choice["message"]
        reasoned += answer.body["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0
        assert answer.ending == ("stop", None)
        assert message["content"] in ("left", "right")
    assert reasoned == 2
    plain = server.chat(
        "c", max_tokens=300, guided_choice=["left", "right"], logit_bias={"258": 100},
        chat_template_kwargs=NO_THINKING,
    )  # fmt: skip
    assert plain.text in ("left", "right") and plain.choice["message"]["reasoning"] is None


def test_who_runs_beside_them_answers_as_ever(server: HttpServer) -> None:
    def plain(number: int) -> str:
        body = server.whole(COMPLETIONS, prompt=f"p{number}", max_tokens=24, temperature=0)
        text: str = body["choices"][0]["text"]
        return text

    def formed(number: int) -> bool:
        body = server.whole(
            COMPLETIONS, prompt=f"p{number}", max_tokens=400, temperature=1, seed=number,
            response_format=format_of(SCHEMA),
        )  # fmt: skip
        return fits(body["choices"][0]["text"])

    alone = [plain(number) for number in range(4)]
    with ThreadPoolExecutor(8) as pool:
        forms = [pool.submit(formed, number) for number in range(4)]
        texts = list(pool.map(plain, range(4)))
        assert all(form.result() for form in forms)
    assert texts == alone


def test_a_client_that_leaves_in_the_middle_leaves_nothing(server: HttpServer) -> None:
    body = {"prompt": "a", "max_tokens": 200, "stream": True, "guided_regex": "[a-z]{200}"}
    for _ in range(3):
        with server._client.stream("POST", COMPLETIONS, json=body) as response:
            assert response.status_code == 200
            next(response.iter_lines())
    server.wait_idle()


NAMED = {"type": "function", "function": {"name": "put"}}


def calls_of(answer: Any) -> list[tuple[str, str]]:
    found = answer.choice["message"]["tool_calls"] or []
    return [(call["function"]["name"], call["function"]["arguments"]) for call in found]


def test_required_calls(server: HttpServer) -> None:
    for seed in range(2):
        answer = server.chat(
            "d", max_tokens=900, tools=[TOOL, OTHER], tool_choice="required", temperature=1,
            seed=seed, chat_template_kwargs=NO_THINKING, parallel_tool_calls=False,
        )  # fmt: skip
        (call,) = calls_of(answer)
        assert answer.ending[0] == "tool_calls" and not answer.choice["message"]["content"]
        assert fits(call[1]) if call[0] == "put" else json.loads(call[1]) == {}


def test_a_named_call(server: HttpServer) -> None:
    answer = server.chat(
        "e", max_tokens=900, tools=[OTHER, TOOL], tool_choice=NAMED, temperature=1, seed=5,
        chat_template_kwargs=NO_THINKING,
    )  # fmt: skip
    ((name, arguments),) = calls_of(answer)
    assert name == "put" and fits(arguments)
    # What OpenAI answers where the client knew beforehand.
    assert answer.ending == ("stop", None)


def test_a_form_beside_tools_is_either(server: HttpServer) -> None:
    kinds = set()
    for seed in range(2):
        answer = server.chat(
            "f", max_tokens=900, tools=[TOOL], response_format=format_of(SCHEMA), temperature=1,
            seed=seed, chat_template_kwargs=NO_THINKING, parallel_tool_calls=False,
            logit_bias={"60": 2},
        )  # fmt: skip
        calls = calls_of(answer)
        kinds.add(bool(calls))
        assert fits(calls[0][1] if calls else answer.text)
    assert kinds


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "two": ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex"),
    "two guided": ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_choice"),
    "two inside": ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
    "none inside": ({"structured_outputs": {}}, "structured_outputs"),
    "a kind": ({"response_format": {"type": "xml"}}, "response_format"),
    "no schema": ({"response_format": {"type": "json_schema"}}, "response_format"),
    "a keyword": (
        {"response_format": format_of({"type": "array", "uniqueItems": True}, strict=True)},
        "response_format",
    ),
    "a type": ({"guided_json": {"type": "strin"}}, "guided_json"),
    "no JSON": ({"guided_json": "{"}, "guided_json"),
    "a ring": ({"guided_json": {"$ref": "#"}}, "guided_json"),
    "nothing": ({"guided_json": False}, "guided_json"),
    "no choice": ({"guided_choice": []}, "guided_choice"),
    "an empty choice": ({"guided_choice": [""]}, "guided_choice"),
    "a regex": ({"guided_regex": "(a"}, "guided_regex"),
    "no regex": ({"guided_regex": ""}, "guided_regex"),
    "look-ahead": ({"guided_regex": "(?=a)b"}, "guided_regex"),
    "Lark": ({"guided_grammar": "((("}, "guided_grammar"),
    "10 MB": ({"guided_json": {"enum": ["x" * 10_000_000]}}, "guided_json"),
    "10 MB of regex": ({"guided_regex": "a" * 10_000_000}, "guided_regex"),
    "many": ({"guided_json": {"enum": list(range(50_000))}}, "guided_json"),
    "wide": ({"guided_json": {"properties": {f"p{i}": {} for i in range(3000)}}}, "guided_json"),
}


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_what_is_no_form_is_refused_soon(server: HttpServer, path: str) -> None:
    prompt = {"prompt": "a"} if path == COMPLETIONS else {"messages": MESSAGES}
    for name, (fields, param) in REFUSED.items():
        if path == CHAT and name.startswith("10 MB"):
            continue
        started_s = time.monotonic()
        error = server.refused(path, {**prompt, "max_tokens": 4, **fields})
        assert time.monotonic() - started_s < 10
        assert str(error["param"]).startswith(param), (name, error)
        assert param in error["message"], name


def test_deep_nesting_is_refused(server: HttpServer) -> None:
    for depth in (120, 5000):
        inner = '{"properties":{"a":' * depth + "{}" + "}}" * depth
        body = f'{{"prompt":"a","max_tokens":4,"guided_json":{inner}}}'.encode()
        assert "nested" in server.refused(COMPLETIONS, body)["message"]


def test_choices_of_tools_and_forms_that_contradict(server: HttpServer) -> None:
    fields = {"messages": MESSAGES, "tools": [TOOL], "tool_choice": "required"}
    error = server.refused(CHAT, {**fields, "response_format": {"type": "json_object"}})
    assert "tool_choice" in error["message"] and "response_format" in error["message"]
    assert server.refused(CHAT, {"messages": MESSAGES, "tool_choice": "required"})["param"]


def test_a_hard_grammar_holds_nobody_up(server: HttpServer) -> None:
    """While it is read, others get their tokens."""
    wide = {"properties": {f"p{i}": {"type": "string"} for i in range(1200)}}
    done = threading.Event()

    def hard() -> None:
        server.post(COMPLETIONS, {"prompt": "a", "max_tokens": 1, "guided_json": wide})
        done.set()

    thread = threading.Thread(target=hard)
    thread.start()
    num_answered = 0
    while not done.is_set():
        server.complete("b", max_tokens=2)
        num_answered += 1
    thread.join()
    assert num_answered >= 1


def test_a_form_that_turns_out_too_complex_is_the_clients_fault(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found when tokens were made already: 400 where nothing was sent, else an event."""
    monkeypatch.setattr("pegainfer_core.grammar.answer_grammar._FIRST_MASKS_S", -1.0)
    fields = {"prompt": "a", "max_tokens": 40, "guided_regex": "[ab]{30}"}
    error = error_of(server.post(COMPLETIONS, fields))
    assert error["param"] == "guided_regex" and "too complex" in error["message"]
    *_, last = server.events(COMPLETIONS, **fields)
    assert last["error"]["param"] == "guided_regex"


def test_the_official_client_parses_what_it_asked_for(server: HttpServer) -> None:
    import pydantic

    class Found(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=3)
        size: bool

    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        answer = client.chat.completions.parse(
            model="m", messages=MESSAGES, response_format=Found, max_tokens=600, temperature=0,
            extra_body={"chat_template_kwargs": NO_THINKING},
        )  # fmt: skip
    parsed = answer.choices[0].message.parsed
    assert isinstance(parsed, Found)
