"""The Messages API, most of it as the official client sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from .served import Server
from .spoken import MARK, Spoken

if TYPE_CHECKING:
    # Takes seconds, which only the process that runs these tests should pay.
    import anthropic

MESSAGES = "/v1/messages"
TOOL: Any = {
    "name": "weather",
    "description": "Weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
INPUTS = ['{"city": "Köln \\"한\\" </tool_call>"}', '{"city": "Bonn", "n": [1, {"a": 2.50}]}']
CALLS = [
    f'<tool_call>\n{{"name": "weather", "arguments": {text}}}\n</tool_call>' for text in INPUTS
]
ASKED: Any = [{"role": "user", "content": "w?"}]
THINKING: Any = {"type": "enabled", "budget_tokens": 1024}
BASIC: dict[str, Any] = {"model": "m", "max_tokens": 2000, "messages": ASKED}


@pytest.fixture(scope="module")
def client(talkers_server: Server) -> Iterator[anthropic.Anthropic]:
    import anthropic

    with anthropic.Anthropic(base_url=talkers_server.url, api_key="none", max_retries=0) as client:
        yield client


def refusal(server: Server, **fields: object) -> str:
    for stream in (False, True):
        response = server.post(MESSAGES, {**BASIC, "stream": stream, **fields})
        assert response.status_code == 400, response.text
    body = response.json()
    assert set(body) == {"type", "error", "request_id"} and body["type"] == "error"
    assert body["request_id"] == response.headers["x-request-id"]
    assert body["error"]["type"] == "invalid_request_error"
    message: str = body["error"]["message"]
    return message


def test_a_whole_message(client: anthropic.Anthropic, script: Spoken) -> None:
    script.say("why\n</think>\n\nI look.\n", *CALLS)
    script.cached_tokens = 7
    message = client.messages.create(
        **BASIC, system="Be brief.", tools=[TOOL], thinking=THINKING, extra_body={"top_k": 9}
    )
    assert (message.type, message.role, message.model) == ("message", "assistant", "m")
    assert (message.stop_reason, message.stop_sequence) == ("tool_use", None)
    thought, said, *calls = message.content
    assert thought.type == "thinking" and thought.thinking == "why" and thought.signature
    assert said.type == "text" and said.text == "I look."
    assert [call.input for call in calls if call.type == "tool_use"] == [
        {"city": 'Köln "한" </tool_call>'},
        {"city": "Bonn", "n": [1, {"a": 2.5}]},
    ]
    usage = message.usage
    assert usage.cache_read_input_tokens == 7 and usage.cache_creation_input_tokens == 0
    assert usage.input_tokens + 7 == len(script.requests[-1].prompt_token_ids)
    assert usage.output_tokens == len(script.sentence) + 1
    assert usage.output_tokens_details and usage.output_tokens_details.thinking_tokens == 12
    assert "[system]Be brief.[user]w?<think>" in script.heard()
    assert (script.requests[-1].params.top_k, script.requests[-1].params.max_tokens) == (9, 2000)


@pytest.mark.parametrize("tokens_per_step", [1, 7, 1000])
def test_a_stream(client: anthropic.Anthropic, script: Spoken, tokens_per_step: int) -> None:
    script.say("why\n</think>\n\nI look.\n", *CALLS)
    script.tokens_per_step = tokens_per_step
    fields: dict[str, Any] = {**BASIC, "tools": [TOOL], "thinking": THINKING}
    events: list[Any] = list(client.messages.create(**fields, stream=True))
    kinds = [event.type for event in events]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"]
    start = events[0].message
    assert (start.content, start.stop_reason, start.usage.output_tokens) == ([], None, 0)
    for index in range(4):
        mine = [event for event in events if getattr(event, "index", None) == index]
        assert [event.type for event in mine][:: len(mine) - 1] == [
            "content_block_start",
            "content_block_stop",
        ]
        assert {event.type for event in mine[1:-1]} == {"content_block_delta"}
    deltas = [event.delta for event in events if event.type == "content_block_delta"]
    assert [delta.signature for delta in deltas if delta.type == "signature_delta"] == ["unsigned"]
    assert events[-2].delta.stop_reason == "tool_use"
    with client.messages.stream(**fields) as stream:
        final = stream.get_final_message()
    whole = client.messages.create(**fields)
    assert final.usage == whole.usage
    for one, other in zip(final.content, whole.content, strict=True):
        skipped = {"id", "parsed_output"}
        assert one.model_dump(exclude=skipped) == other.model_dump(exclude=skipped)


def test_the_next_turn(client: anthropic.Anthropic, script: Spoken) -> None:
    script.say("wh</think>I look.\n", *CALLS)
    fields: dict[str, Any] = {**BASIC, "tools": [TOOL], "thinking": THINKING}
    first = client.messages.create(**fields)
    calls = [block.id for block in first.content if block.type == "tool_use"]
    results = [
        {"type": "tool_result", "tool_use_id": calls[0], "content": "rain"},
        {
            "type": "tool_result",
            "tool_use_id": calls[1],
            "content": [{"type": "text", "text": "no such town"}],
            "is_error": True,
        },
        {"type": "text", "text": "And?"},
        {"type": "text", "text": "Well?", "cache_control": {"type": "ephemeral"}},
    ]
    history = [
        *ASKED,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": results},
    ]
    fields["messages"] = history
    client.messages.create(**fields)
    assert script.heard().endswith(
        '[user]w?[assistant]~wh~I look.({"city": "Köln \\"한\\" </tool_call>"})'
        '({"city": "Bonn", "n": [1, {"a": 2.5}]})'
        "[tool]rain[tool]Error:\nno such town[user]And?\nWell?<think>\n"
    )
    del fields["max_tokens"]
    count = client.messages.count_tokens(**fields)
    assert count.input_tokens == len(script.requests[-1].prompt_token_ids)


def test_what_a_coding_agent_sends(talker: Server, script: Spoken) -> None:
    script.say("Ok.")
    block = {"type": "text", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    body = {
        "model": "m",
        "max_tokens": 32_000,
        "stream": False,
        "metadata": {"user_id": "user_1_account__session_2"},
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=fa690;"},
            {**block, "text": "You code."},
        ],
        "messages": [
            {
                "role": "user",
                "content": [{**block, "text": "<system-reminder>"}, {**block, "text": "Go."}],
            },
            {"role": "system", "content": "Mind the time."},
        ],
        "tools": [{**TOOL, "cache_control": {"type": "ephemeral"}, "eager_input_streaming": True}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "temperature": 1,
    }
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "what-2031-01-01,oauth-2"}
    response = talker.post(f"{MESSAGES}?beta=true", body, headers=headers)
    assert response.status_code == 200, response.text
    # The client's note to the hosted API differs in every request; prefixes must not.
    assert script.heard().endswith(
        "]}[system]You code.[user]<system-reminder>\nGo.[user]Mind the time.<think>\n".lstrip("]}")
    )
    # A limit beyond the context is cut to what there is room for.
    request = script.requests[-1]
    assert request.params.max_tokens == 4096 - len(request.prompt_token_ids)


def test_why_answers_end(client: anthropic.Anthropic, script: Spoken) -> None:
    script.say("ab STOP and more")
    create = client.messages.create
    stopped = create(**BASIC, stop_sequences=["no", "STOP"])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "STOP")
    assert stopped.content[0].type == "text" and stopped.content[0].text == "ab "
    assert create(**BASIC).stop_reason == "end_turn"
    assert create(**{**BASIC, "max_tokens": 3}).stop_reason == "max_tokens"
    script.sentence = (ord("a"),) * 400
    long: Any = [{"role": "user", "content": "a" * 4000}]
    filled = create(**{**BASIC, "messages": long, "max_tokens": 8000})
    assert filled.stop_reason == "model_context_window_exceeded"
    script.sentence = ()
    assert create(**BASIC).content == []


def test_prompts_that_are_too_long_are_told_in_the_words_agents_look_for(
    talker: Server, script: Spoken
) -> None:
    for text in ("a" * 5000, "a" * (2 << 20)):
        told = refusal(talker, messages=[{"role": "user", "content": text}])
        assert told.startswith("prompt is too long: ")
        assert "4096" in told and "messages" in told


def test_forms_are_those_of_chats(client: anthropic.Anthropic, script: Spoken) -> None:
    schema = {"type": "object", "properties": {"rain": {"type": "boolean"}}}
    script.say('{"rain": true}')
    output: Any = {"format": {"type": "json_schema", "schema": schema}}
    (block,) = client.messages.create(**BASIC, output_config=output).content
    assert block.type == "text" and block.text == '{"rain": true}'
    form = script.requests[-1].params.structured
    assert form is not None and form.kind == "json_schema" and '"rain"' in form.text
    script.say(CALLS[1])
    for choice in ({"type": "any"}, {"type": "tool", "name": "weather"}):
        message = client.messages.create(**BASIC, tools=[TOOL], tool_choice=choice)
        assert message.stop_reason == "tool_use"
        form = script.requests[-1].params.structured
        assert form is not None and form.kind == "grammar"


def test_thinking_is_asked_for(client: anthropic.Anthropic, script: Spoken) -> None:
    script.say("so")
    assert client.messages.create(**BASIC).content[0].type == "text"
    assert not script.heard().endswith("<think>\n")
    script.say("why</think>so")
    omitted: Any = {"type": "adaptive", "display": "omitted"}
    (block,) = client.messages.create(**BASIC, thinking=omitted).content
    assert block.type == "text" and block.text == "so"
    assert script.heard().endswith("<think>\n")


def test_an_answer_is_continued(client: anthropic.Anthropic, script: Spoken) -> None:
    script.say("bc")
    prefill: Any = [*ASKED, {"role": "assistant", "content": f"{MARK}a"}]
    (block,) = client.messages.create(**{**BASIC, "messages": prefill}).content
    assert block.type == "text" and block.text == "c"
    assert bytes(script.requests[-1].prompt_token_ids).decode().endswith(f"[assistant]{MARK}a")


def test_the_async_client(talker: Server, script: Spoken) -> None:
    async def collect() -> str:
        import anthropic

        async with anthropic.AsyncAnthropic(
            base_url=talker.url, api_key="none", max_retries=0
        ) as client:
            async with client.messages.stream(**BASIC) as stream:
                return "".join([text async for text in stream.text_stream])

    script.say("héy")
    assert asyncio.run(collect()) == "héy"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"max_tokens": None}, "$.max_tokens"),
        ({"max_tokens": 0}, "$.max_tokens"),
        ({"messages": []}, "messages must not be empty"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "$.messages[0].role"),
        ({"messages": [{"role": "user", "content": [3]}]}, "$.messages[0].content[0]"),
        (
            {
                "messages": [
                    *ASKED,
                    {
                        "role": "user",
                        "content": [{"type": "text", "text": "a"}, {"type": "image", "source": {}}],
                    },
                ]
            },
            "messages[1].content[1]",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "content[0]"),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "tool_result",
                                "tool_use_id": "a",
                                "content": [{"type": "image"}],
                            }
                        ],
                    }
                ]
            },
            "messages[0].content[0].content[0]",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
            "messages[0].content[0].tool_use_id",
        ),
        (
            {
                "messages": [
                    *ASKED,
                    {
                        "role": "assistant",
                        "content": [{"type": "tool_use", "id": "a", "name": "f", "input": "{}"}],
                    },
                ]
            },
            "messages[1].content[0].input",
        ),
        (
            {
                "messages": [
                    *ASKED,
                    {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "a"}]},
                ]
            },
            "messages[1].content[0].type",
        ),
        ({"system": [{"type": "image"}]}, "system[0]"),
        ({"system": 3}, "$.system"),
        ({"system": [{"type": "text", "text": ""}] * 20_000}, "20001 items; at most 16384"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": [TOOL, {"name": "f"}]}, "tools[1].input_schema"),
        ({"tools": [{**TOOL, "name": "a b"}]}, "tools[0].name"),
        ({"tools": [{**TOOL, "defer_loading": True}]}, "tools[0].defer_loading"),
        ({"tools": [{**TOOL, "input_examples": [{}]}]}, "tools[0].input_examples"),
        ({"tools": [TOOL], "tool_choice": {"type": "some"}}, "$.tool_choice.type"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"thinking": {"type": "between_tools"}}, "$.thinking.type"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"stop_sequences": ["a"] * 17}, "stop_sequences"),
        ({"temperature": -1}, "temperature"),
        ({"container": "c"}, "container"),
        ({"mcp_servers": [{"url": "u"}]}, "mcp_servers"),
        (
            {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
            "context_management",
        ),
        ({"speed": "fast"}, "speed"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type must be"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "other"}},
            "tool_choice names 'other'",
        ),
        # Fields of chats.
        ({"n": 2}, "n is"),
        ({"stop": "a"}, "stop is"),
    ],
)
def test_refusals(talker: Server, fields: dict[str, Any], named: str) -> None:
    assert named in refusal(talker, **fields)


def test_errors_reach_the_client_in_its_own_shape(
    talker: Server, client: anthropic.Anthropic, script: Spoken
) -> None:
    import anthropic

    with pytest.raises(anthropic.NotFoundError) as missing:
        client.messages.create(**{**BASIC, "model": "x"})
    body: Any = missing.value.body
    assert body["error"]["type"] == "not_found_error" and "'x'" in body["error"]["message"]
    for method, path, kind, status in [
        ("GET", MESSAGES, "invalid_request_error", 405),
        ("POST", f"{MESSAGES}/batches", "not_found_error", 404),
    ]:
        response = talker.client.request(method, path)
        assert response.status_code == status
        assert response.json()["error"]["type"] == kind
    response = talker.post_raw(MESSAGES, "{", "text/plain")
    assert (response.status_code, response.json()["type"]) == (415, "error")
    response = talker.post_raw(MESSAGES, "{", "application/json")
    assert response.json()["error"]["type"] == "invalid_request_error"
    # Others keep theirs.
    assert talker.post("/v1/responses", {}).json()["error"]["param"] == "$.input"
    long: Any = [{"role": "user", "content": "a" * 5000}]
    count = client.messages.count_tokens(model="m", messages=long)
    assert count.input_tokens > 5000
    with pytest.raises(anthropic.BadRequestError) as too_long:
        client.messages.create(**{**BASIC, "messages": long})
    assert "4096" in str(too_long.value)
