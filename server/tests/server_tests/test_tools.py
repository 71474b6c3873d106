"""Tools over HTTP, most of it as the official client sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from pegainfer_server.parsing import ChatParsers

from pegainfer_core.text import REASONING_PARSERS, TOOL_PARSERS

from .served import Server, decode_events, serving
from .spoken import TEMPLATE, Spoken

CHAT = "/v1/chat/completions"
MESSAGES: list[Any] = [{"role": "user", "content": "w?"}]
FUNCTION = {
    "description": "Weather",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
TOOLS: list[Any] = [{"type": "function", "function": FUNCTION}]
ARGUMENTS = ['{"city": "Köln \\"한\\" </tool_call>"}', '{"city": "Bonn", "n": [1, {"a": 2.50}]}']
CALLS = [
    f'<tool_call>\n{{"name": "weather", "arguments": {text}}}\n</tool_call>' for text in ARGUMENTS
]


@pytest.fixture(scope="module")
def script() -> Spoken:
    return Spoken()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, script: Spoken) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("model")
    parsers = ChatParsers(reasoning=REASONING_PARSERS["think"], tools=TOOL_PARSERS["hermes"])
    with serving(folder, script, chat_template=TEMPLATE, parsers=parsers) as server:
        yield server


@pytest.fixture
def server(shared: Server, script: Spoken) -> Server:
    fresh = Spoken()
    for name, value in vars(fresh).items():
        setattr(script, name, value)
    shared.records.clear()
    return shared


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def ask(server: Server, **fields: object) -> dict[str, Any]:
    response = server.post(CHAT, {"messages": MESSAGES, **fields})
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def refusal(server: Server, **fields: object) -> dict[str, Any]:
    for stream in (False, True):
        response = server.post(CHAT, {"messages": MESSAGES, "stream": stream, **fields})
        assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    return error


def prompt_of(server: Server, **fields: object) -> str:
    ids = ask(server, return_token_ids=True, **fields)["prompt_token_ids"]
    text: str = server.post("/detokenize", {"tokens": ids}).json()["prompt"]
    return text


def test_a_whole_answer(client: openai.OpenAI, script: Spoken) -> None:
    script.say("I look.\n", *CALLS)
    answer = client.chat.completions.create(model="m", messages=MESSAGES, tools=TOOLS)
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "I look."
    calls = choice.message.tool_calls or []
    assert [call.type for call in calls] == ["function", "function"]
    assert [call.function.name for call in calls] == ["weather", "weather"]  # type: ignore[union-attr]
    # As the model wrote them: the wire type is text.
    assert [call.function.arguments for call in calls] == ARGUMENTS  # type: ignore[union-attr]
    assert len({call.id for call in calls}) == 2
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len(script.sentence) + 1


@pytest.mark.parametrize("tokens_per_step", [1, 3, 50, 1000])
def test_a_stream(
    server: Server, client: openai.OpenAI, script: Spoken, tokens_per_step: int
) -> None:
    script.say("I look.\n", *CALLS)
    script.tokens_per_step = tokens_per_step
    options: Any = {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = client.chat.completions.create(
        model="m", messages=MESSAGES, tools=TOOLS, **options
    )
    assert last.usage.completion_tokens == len(script.sentence) + 1
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert "".join(delta.content or "" for delta in deltas) == "I look."
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "tool_calls"
    pieces = [piece for delta in deltas for piece in delta.tool_calls or []]
    joined: dict[int, str] = {}
    for piece in pieces:
        first = piece.index not in joined
        assert (piece.id is not None) == (piece.function.name == "weather") == first
        assert piece.type == ("function" if first else None)
        joined[piece.index] = joined.get(piece.index, "") + piece.function.arguments
    assert joined == dict(enumerate(ARGUMENTS))
    assert all(json.loads(text) for text in joined.values())
    # No event for what is held back.
    assert all(delta.content or delta.tool_calls for delta in deltas[1:-1])


def test_the_stream_helper_of_the_client(client: openai.OpenAI, script: Spoken) -> None:
    script.say(CALLS[1])
    with client.chat.completions.stream(model="m", messages=MESSAGES, tools=TOOLS) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.done" in kinds
    (call,) = final.choices[0].message.tool_calls or []
    assert call.function.arguments == ARGUMENTS[1]


def test_the_next_turn(server: Server, client: openai.OpenAI, script: Spoken) -> None:
    script.say(CALLS[1])
    message = (
        client.chat.completions.create(model="m", messages=MESSAGES, tools=TOOLS).choices[0].message
    )
    (call,) = message.tool_calls or []
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    history = [*MESSAGES, message.to_dict(), result]
    script.say("Rain.")
    answer = client.chat.completions.create(model="m", messages=history, tools=TOOLS)
    assert answer.choices[0].message.content == "Rain."
    assert answer.choices[0].finish_reason == "stop"
    prompt = prompt_of(server, messages=history, tools=TOOLS)
    # A mapping again for the template, and the declaration exactly as it was sent.
    assert '[assistant]({"city": "Bonn", "n": [1, {"a": 2.5}]})[tool]rain' in prompt
    assert prompt.startswith(json.dumps(TOOLS, ensure_ascii=False))
    count = server.post("/tokenize", {"messages": history, "tools": TOOLS}).json()["count"]
    assert count == len(prompt.encode())


@pytest.mark.parametrize(
    "text",
    [
        CALLS[0][:-30],
        CALLS[1].replace("}", "", 1),
        "<tool_call>\nno call\n</tool_call>\n",
        "</tool_call> a <tool",
        "text\n\n",
    ],
)
def test_what_is_no_call_is_content(server: Server, script: Spoken, text: str) -> None:
    script.say(text)
    choice = ask(server, tools=TOOLS)["choices"][0]
    assert choice["message"]["content"] == text
    assert choice["message"]["tool_calls"] is None
    assert choice["finish_reason"] == "stop"
    events = server.events(CHAT, messages=MESSAGES, tools=TOOLS)
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events) == text


def test_without_tools_calls_are_text(server: Server, script: Spoken) -> None:
    script.say(CALLS[0])
    for fields in ({}, {"tools": []}, {"tools": TOOLS, "tool_choice": "none"}):
        choice = ask(server, **fields)["choices"][0]
        assert choice["message"]["content"] == CALLS[0]
        assert choice["finish_reason"] == "stop"
        # The model is not told of what it must not call.
        assert prompt_of(server, **fields).startswith("[user]")


def test_a_limit_wins_over_a_call(server: Server, script: Spoken) -> None:
    script.say(*CALLS)
    limit = len(CALLS[0].encode()) + 20
    choice = ask(server, tools=TOOLS, max_tokens=limit)["choices"][0]
    assert choice["finish_reason"] == "length"
    assert len(choice["message"]["tool_calls"]) == 1
    assert choice["message"]["content"] == CALLS[1][:20]


def test_one_call_only(server: Server, script: Spoken) -> None:
    script.say("a", *CALLS, "b" * 500)
    for step in (1, 400):
        script.tokens_per_step = step
        body = ask(server, tools=TOOLS, parallel_tool_calls=False, logprobs=True)
        (choice,) = body["choices"]
        assert [c["function"]["arguments"] for c in choice["message"]["tool_calls"]] == ARGUMENTS[
            :1
        ]
        assert choice["message"]["content"] == "a"
        assert choice["finish_reason"] == "tool_calls"
        num_tokens = len("".join(["a", *CALLS]).encode())
        assert body["usage"]["completion_tokens"] == num_tokens
        assert len(choice["logprobs"]["content"]) == num_tokens
    server.wait_for(lambda: not server.state.num_open)
    script.say(CALLS[0])
    (choice,) = ask(server, tools=TOOLS, parallel_tool_calls=False)["choices"]
    assert len(choice["message"]["tool_calls"]) == 1


def test_stop_strings_and_logprobs(server: Server, script: Spoken) -> None:
    script.say("ab\n", CALLS[1], "STOP and more")
    fields: dict[str, Any] = {"tools": TOOLS, "stop": "STOP", "logprobs": True, "top_logprobs": 1}
    body = ask(server, **fields, return_token_ids=True)
    (choice,) = body["choices"]
    kept = list(f"ab\n{CALLS[1]}STOP".encode())
    assert (choice["finish_reason"], choice["stop_reason"]) == ("tool_calls", "STOP")
    assert choice["message"]["content"] == "ab"
    assert choice["token_ids"] == kept
    assert len(choice["logprobs"]["content"]) == body["usage"]["completion_tokens"] == len(kept)
    script.tokens_per_step = 4
    events = server.events(CHAT, messages=MESSAGES, **fields, return_token_ids=True)
    choices = [event["choices"][0] for event in events]
    assert [i for c in choices for i in c.get("token_ids", [])] == kept
    entries = [entry for c in choices for entry in c.get("logprobs", {}).get("content", [])]
    assert entries == choice["logprobs"]["content"]
    pieces = [p for c in choices for p in c["delta"].get("tool_calls", [])]
    assert "".join(p["function"]["arguments"] for p in pieces) == ARGUMENTS[1]
    assert choices[-1]["finish_reason"] == "tool_calls"
    # A stop string inside of a call leaves no call.
    (cut,) = ask(server, tools=TOOLS, stop="Bonn")["choices"]
    assert cut["message"]["content"] == f"ab\n{CALLS[1].partition('Bonn')[0]}"
    assert (cut["finish_reason"], cut["message"]["tool_calls"]) == ("stop", None)


def test_a_stop_string_that_shows_at_the_very_end(server: Server, script: Spoken) -> None:
    script.say(CALLS[1], 0xC3)
    (choice,) = ask(server, tools=TOOLS, stop="\ufffd")["choices"]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("tool_calls", "\ufffd")
    assert choice["message"]["content"] is None


def test_the_record_keeps_the_engines_reason(server: Server, script: Spoken) -> None:
    script.say(CALLS[0])
    ask(server, tools=TOOLS)
    server.wait_for(lambda: bool(server.records))
    assert server.records[0].finish_reason == "stop"


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "weather"}}]
)
def test_choices_that_need_a_grammar(server: Server, choice: object) -> None:
    """This engine follows none."""
    error = refusal(server, tool_choice=choice, tools=TOOLS)
    assert (error["code"], error["param"]) == ("unsupported_parameter", "tool_choice")
    assert refusal(server, tool_choice=choice)["param"] == "tool_choice"


def test_strict_tools_need_a_grammar(server: Server) -> None:
    error = refusal(server, tools=[{"type": "function", "function": {**FUNCTION, "strict": True}}])
    assert (error["code"], error["param"]) == ("unsupported_parameter", "tools")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice"),
        ({"tools": 3}, "$.tools"),
        ({"tools": [3]}, "$.tools[0]"),
        ({"tools": [{"type": "web_search"}]}, "$.tools[0].type"),
        ({"tools": [{"type": "function"}]}, "$.tools[0].function"),
        ({"tools": [*TOOLS, {"type": "function", "function": {}}]}, "$.tools[1].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "a b"}}]},
            "$.tools[0].function.name",
        ),
        (
            {"tools": [{"type": "function", "function": {**FUNCTION, "parameters": []}}]},
            "$.tools[0].function.parameters",
        ),
        ({"tools": TOOLS, "parallel_tool_calls": 1}, "$.parallel_tool_calls"),
        ({"tools": TOOLS, "tool_choice": {"type": "function"}}, "tool_choice"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "other"}}},
            "tool_choice",
        ),
    ],
)
def test_bad_declarations(server: Server, fields: dict[str, Any], param: str) -> None:
    assert refusal(server, **fields)["param"] == param


def test_a_model_without_a_format(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("plain")) as server:
        error = refusal(server, tools=TOOLS)
        assert (error["code"], error["param"]) == ("unsupported_parameter", "tools")
        assert "--tool-call-parser" in error["message"]
        # Nothing is asked of the parser.
        assert "choices" in ask(server, tools=TOOLS, tool_choice="none")
        assert decode_events(server.post(CHAT, {"messages": MESSAGES, "stream": True}).content)


class _Broken:
    tags = ()

    def feed(self, text: str) -> object:
        raise RuntimeError("a parser's fault")

    flush = feed


def test_a_parser_that_fails(folder: Any) -> None:
    broken: Any = lambda tools: _Broken()  # noqa: E731
    script = Spoken()
    script.say("abc")
    with serving(
        folder, script, chat_template=TEMPLATE, parsers=ChatParsers(tools=broken)
    ) as server:
        response = server.post(CHAT, {"messages": MESSAGES, "tools": TOOLS})
        assert response.status_code == 500
        assert response.json()["error"]["code"] == "internal_error"
        server.wait_for(lambda: not server.state.num_open)
        script.sentence = ()
        assert ask(server)["choices"][0]["message"]["content"] == ""
