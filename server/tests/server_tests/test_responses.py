"""The Responses API, most of it as the official client sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest

from .served import Server
from .spoken import Spoken

RESPONSES = "/v1/responses"
TOOL: Any = {
    "type": "function",
    "name": "weather",
    "description": "Weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
ARGUMENTS = ['{"city": "Köln \\"한\\" </tool_call>"}', '{"city": "Bonn", "n": [1, {"a": 2.50}]}']
CALLS = [
    f'<tool_call>\n{{"name": "weather", "arguments": {text}}}\n</tool_call>' for text in ARGUMENTS
]
THINKING: Any = {"chat_template_kwargs": {"enable_thinking": True}}
SEALED: Any = ["reasoning.encrypted_content"]


@pytest.fixture(scope="module")
def client(talkers_server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{talkers_server.url}/v1", api_key="none", max_retries=0
    ) as client:
        yield client


def ask(server: Server, **fields: object) -> dict[str, Any]:
    response = server.post(RESPONSES, {"input": "w?", **fields})
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def refusal(server: Server, **fields: object) -> dict[str, Any]:
    for stream in (False, True):
        response = server.post(RESPONSES, {"input": "w?", "stream": stream, **fields})
        assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    return error


def test_a_whole_response(client: openai.OpenAI, script: Spoken) -> None:
    script.say("why\n</think>\n\nI look.\n", *CALLS)
    script.cached_tokens = 7
    response = client.responses.create(
        model="m",
        input="w?",
        instructions="Be brief.",
        tools=[TOOL],
        metadata={"a": "b"},
        temperature=0.5,
        max_output_tokens=900,
        extra_body=THINKING,
    )
    assert (response.status, response.model, response.object) == ("completed", "m", "response")
    assert response.error is None and response.incomplete_details is None
    assert response.metadata == {"a": "b"} and response.temperature == 0.5
    thought, said, *calls = response.output
    assert thought.type == "reasoning" and thought.content
    assert thought.content[0].text == "why" and not thought.summary
    assert said.type == "message" and response.output_text == "I look."
    assert [call.type for call in calls] == ["function_call", "function_call"]
    assert [call.arguments for call in calls if call.type == "function_call"] == ARGUMENTS
    assert len({item.id for item in response.output}) == 4
    usage = response.usage
    assert usage is not None and usage.input_tokens_details.cached_tokens == 7
    assert usage.output_tokens == len(script.sentence) + 1
    assert usage.output_tokens_details.reasoning_tokens == 12
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert "[system]Be brief.[user]w?<think>" in script.heard()
    assert script.requests[-1].params.max_tokens == 900


@pytest.mark.parametrize("tokens_per_step", [1, 7, 1000])
def test_a_stream(client: openai.OpenAI, script: Spoken, tokens_per_step: int) -> None:
    script.say("why\n</think>\n\nI look.\n", *CALLS)
    script.tokens_per_step = tokens_per_step
    fields: dict[str, Any] = {
        "model": "m",
        "input": "w?",
        "tools": [TOOL],
        "reasoning": {"summary": "auto"},
        "extra_body": THINKING,
    }
    events: list[Any] = list(client.responses.create(stream=True, **fields))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert list(dict.fromkeys(kinds)) == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_text.delta",
        "output_text.done",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "completed",
    ]
    assert all(not event.response.output for event in events[:2])
    final = events[-1].response
    assert [item.type for item in final.output] == ["reasoning", "message", *["function_call"] * 2]
    assert final.output_text == "I look."
    assert final.output[0].summary[0].text == final.output[0].content[0].text == "why"
    for index, item in enumerate(final.output):
        mine = [event for event in events if getattr(event, "output_index", None) == index]
        assert mine[0].item.id == mine[-1].item.id == item.id
        assert mine[0].item.status == "in_progress" and mine[-1].item == item
        texts = [event.delta for event in mine if event.type.endswith(("t.delta", "s.delta"))]
        whole = [event for event in mine if event.type.endswith((".arguments.done", "text.done"))]
        if item.type == "function_call":
            assert "".join(texts) == item.arguments == ARGUMENTS[index - 2]
        elif item.type == "message":
            assert "".join(texts) == whole[0].text == "I look."
    assert final.usage == client.responses.create(**fields).usage


def test_the_stream_helper_of_the_client(client: openai.OpenAI, script: Spoken) -> None:
    script.say("I look.\n", CALLS[1])
    with client.responses.stream(model="m", input="w?", tools=[TOOL]) as stream:
        snapshots = [event.snapshot for event in stream if event.type.endswith("text.delta")]
        final = stream.get_final_response()
    assert snapshots[-1] == final.output_text == "I look."
    assert final.output[1].type == "function_call"
    assert final.output[1].arguments == ARGUMENTS[1]


@pytest.mark.parametrize("only_sealed", [False, True])
def test_the_next_turn(client: openai.OpenAI, script: Spoken, only_sealed: bool) -> None:
    script.say("wh</think>I look.\n", *CALLS)
    fields: dict[str, Any] = {"model": "m", "tools": [TOOL], "extra_body": THINKING}
    history: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": "w?"}]}]
    first = client.responses.create(input=history, include=SEALED, store=False, **fields)
    items: list[Any] = [item.to_dict() for item in first.output]
    if only_sealed:
        del items[0]["content"]
    results = [
        {"type": "function_call_output", "call_id": items[2]["call_id"], "output": "rain"},
        {
            "type": "function_call_output",
            "call_id": items[3]["call_id"],
            "output": [{"type": "input_text", "text": "sun"}],
        },
    ]
    client.responses.create(input=[*history, *items, *results], **fields)
    assert script.heard().endswith(
        '[user]w?[assistant]~wh~I look.({"city": "Köln \\"한\\" </tool_call>"})'
        '({"city": "Bonn", "n": [1, {"a": 2.5}]})[tool]rain[tool]sun<think>\n'
    )


def test_forms_are_those_of_chats(talker: Server, client: openai.OpenAI, script: Spoken) -> None:
    class Sky(pydantic.BaseModel):
        rain: bool

    script.say('{"rain": true}')
    parsed = client.responses.parse(model="m", input="w?", text_format=Sky)
    assert parsed.output_parsed == Sky(rain=True)
    form = script.requests[-1].params.structured
    assert form is not None and form.kind == "json_schema" and '"rain"' in form.text
    with client.responses.stream(model="m", input="w?", text_format=Sky) as stream:
        assert stream.get_final_response().output_parsed == Sky(rain=True)
    client.responses.create(model="m", input="w?", tools=[TOOL], tool_choice="required")
    form = script.requests[-1].params.structured
    assert form is not None and form.kind == "grammar"
    ask(talker, tools=[TOOL], tool_choice={"type": "function", "name": "weather"})
    error = refusal(talker, text={"format": {"type": "grammar"}})
    assert "text.format.type" in error["message"]
    error = refusal(talker, text={"format": {"type": "json_schema", "name": "a"}})
    assert "text.format.schema is required" in error["message"]
    error = refusal(talker, text={"format": {"type": "json_schema", "name": 3}})
    assert error["param"] == "$.text.format.name"


def test_functions_in_namespaces(client: openai.OpenAI, script: Spoken) -> None:
    script.say(CALLS[1].replace("weather", "sky.weather"))
    space: Any = {"type": "namespace", "name": "sky", "description": "Above.", "tools": [TOOL]}
    fields: dict[str, Any] = {"model": "m", "tools": [{**TOOL, "name": "other"}, space]}
    (call,) = client.responses.create(input="w?", **fields).output
    assert call.type == "function_call"
    assert (call.name, call.namespace, call.arguments) == ("weather", "sky", ARGUMENTS[1])
    assert '"name": "sky.weather", "description": "Above.\\nWeather"' in script.heard()
    *_, added, _, done, _, _ = client.responses.create(input="w?", stream=True, **fields)
    assert added.type == "response.output_item.added" and done.type.endswith("arguments.done")
    assert (added.item.namespace, done.name) == ("sky", "weather")  # type: ignore[union-attr]
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    client.responses.create(input=["w?", call, result][1:], **fields)
    assert '[assistant]({"city"' in script.heard() and "[tool]rain" in script.heard()


def test_what_a_coding_agent_sends(talker: Server, script: Spoken) -> None:
    script.say(CALLS[1])
    body = ask(
        talker,
        model="m",
        instructions="You code.",
        input=[
            {
                "type": "message",
                "role": "developer",
                "content": [{"type": "input_text", "text": "Sandboxed."}],
            },
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go."}]},
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "hm"}],
                "content": None,
                "encrypted_content": None,
            },
            {
                "type": "message",
                "role": "assistant",
                "phase": "commentary",
                "content": [{"type": "output_text", "text": "Ok."}],
            },
            {
                "type": "message",
                "role": "developer",
                "content": [{"type": "input_text", "text": "Unsandboxed."}],
            },
        ],
        tools=[TOOL],
        tool_choice="auto",
        parallel_tool_calls=False,
        reasoning={"effort": "high", "summary": "auto"},
        store=False,
        stream=False,
        include=SEALED,
        prompt_cache_key="0199",
        text={"verbosity": "medium"},
        client_metadata={"x": "y"},
    )
    # One system message, for most templates take no other.
    assert script.heard().partition("]}")[0].startswith('[{"type": "function"')
    assert script.heard().endswith(
        "[system]You code.\nSandboxed.[user]Go.[assistant]~hm~Ok.[user]Unsandboxed.<think>\n"
    )
    assert body["reasoning"] == {"effort": "high", "summary": "auto"}
    assert body["parallel_tool_calls"] is False


def test_a_limit_makes_it_incomplete(client: openai.OpenAI, script: Spoken) -> None:
    script.say("ab and more")
    response = client.responses.create(model="m", input="w?", max_output_tokens=2)
    assert (response.status, response.output_text) == ("incomplete", "ab")
    assert response.incomplete_details and response.incomplete_details.reason == "max_output_tokens"
    assert response.output[0].type == "message" and response.output[0].status == "incomplete"
    *_, last = client.responses.create(model="m", input="w?", max_output_tokens=2, stream=True)
    assert (last.type, last.response.output_text) == ("response.incomplete", "ab")


def test_nothing_said(client: openai.OpenAI, script: Spoken) -> None:
    response = client.responses.create(model="m", input="w?")
    assert (response.status, response.output, response.output_text) == ("completed", [], "")
    events = list(client.responses.create(model="m", input="w?", stream=True))
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.completed",
    ]


def test_the_async_client(talker: Server, script: Spoken) -> None:
    async def count() -> str:
        url = f"{talker.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            stream = await client.responses.create(model="m", input="w?", stream=True)
            texts = [e.delta async for e in stream if e.type == "response.output_text.delta"]
            return "".join(texts)

    script.say("héy")
    assert asyncio.run(count()) == "héy"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "$.input"),
        ({"input": []}, "input"),
        ({"input": [3]}, "$.input[0]"),
        ({"input": [{}] * 20_000}, "input"),
        ({"input": [{"type": "message", "role": "tool", "content": ""}]}, "input[0].role"),
        ({"input": [{"type": ["message"], "role": "user", "content": "a"}]}, "input[0].type"),
        ({"input": [{"type": "item_reference", "id": "a"}]}, "input[0].type"),
        ({"input": [{"type": "web_search_call"}]}, "input[0].type"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id"),
        (
            {"input": [{"type": "function_call", "call_id": "a", "name": "f", "arguments": "[]"}]},
            "input[0].arguments",
        ),
        ({"input": [{"type": "reasoning", "content": [{}]}]}, "input[0].content[0].text"),
        (
            {"input": [{"type": "reasoning", "encrypted_content": "gAAAA"}]},
            "input[0].encrypted_content",
        ),
        (
            {
                "input": [
                    {"role": "system", "content": "a"},
                    {
                        "role": "user",
                        "content": [
                            {"type": "input_text", "text": "a"},
                            {"type": "input_image", "image_url": "data:"},
                        ],
                    },
                ]
            },
            "input[1].content[1]",
        ),
        (
            {
                "input": [
                    {
                        "type": "function_call_output",
                        "call_id": "a",
                        "output": [{"type": "input_image", "image_url": "data:"}],
                    }
                ]
            },
            "input[0].output[0]",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_audio"}]}]},
            "input[0].content[0]",
        ),
        ({"max_output_tokens": 0}, "$.max_output_tokens"),
        ({"max_output_tokens": 10**6}, "input"),
        ({"temperature": -1}, "temperature"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"reasoning": {"summary": "concise"}}, "reasoning.summary"),
        ({"reasoning": {"context": "all_turns"}}, "reasoning.context"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "custom", "name": "apply_patch"}]}, "tools[0].type"),
        ({"tools": [{"type": "namespace", "name": "n"}]}, "tools[0].tools"),
        (
            {"tools": [TOOL, {"type": "namespace", "name": "n", "tools": [{"type": "custom"}]}]},
            "tools[1].tools[0].type",
        ),
        ({"tools": [TOOL, {"type": "function"}]}, "tools[1].name"),
        ({"tools": [{**TOOL, "name": "a b"}]}, "tools[0].name"),
        ({"tools": [{**TOOL, "defer_loading": True}]}, "tools[0].defer_loading"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, "tool_choice.type"),
        ({"tools": [TOOL], "tool_choice": "some"}, "tool_choice"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"truncation": "auto"}, "truncation"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"background": True}, "background"),
        ({"conversation": "c"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
        ({"store": True}, "store"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        # Fields of chats.
        ({"messages": []}, "messages"),
        ({"n": 2}, "n"),
        ({"stop": "a"}, "stop"),
        ({"max_tokens": 3}, "max_tokens"),
        ({"metadata": {"a": 1}}, "$.metadata[...]"),
    ],
)
def test_refusals(talker: Server, fields: dict[str, Any], param: str) -> None:
    error = refusal(talker, **fields)
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert "messages[" not in error["message"] and ".function" not in error["message"]


def test_refusals_say_why(talker: Server, client: openai.OpenAI) -> None:
    assert "stateless" in refusal(talker, previous_response_id="resp_1")["message"]
    assert "stateless" in refusal(talker, store=True)["message"]
    too_long = refusal(talker, max_output_tokens=10**6)
    assert too_long["code"] == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError) as missing:
        client.responses.create(model="x", input="w?")
    assert missing.value.code == "model_not_found"
    response = talker.post(RESPONSES, {"input": "w?", "previous_response_id": None, "store": None})
    assert response.status_code == 200
