"""Reasoning over HTTP: a field of its own, in whole answers and streams."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from pegainfer_core.testing import END_THINK_ID, THINK_ID

from .served import Server
from .spoken import MARK, Spoken

CHAT = "/v1/chat/completions"
MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]
TOOLS: list[Any] = [{"type": "function", "function": {"name": "f"}}]
CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
THINKING = {"chat_template_kwargs": {"enable_thinking": True}}


@pytest.fixture
def server(talker: Server) -> Server:
    return talker


def both(server: Server, **fields: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answer and its choice, the same whole and streamed."""
    response = server.post(CHAT, {"messages": MESSAGES} | fields)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    choice = body["choices"][0]
    options = {"stream_options": {"include_usage": True}}
    *events, last = server.events(CHAT, **{"messages": MESSAGES, **fields, **options})
    deltas = [event["choices"][0]["delta"] for event in events]
    for name in ("content", "reasoning", "reasoning_content"):
        streamed = "".join(delta.get(name, "") for delta in deltas)
        assert streamed == (choice["message"][name] or "")
    assert last["usage"] == body["usage"]
    assert events[-1]["choices"][0]["finish_reason"] == choice["finish_reason"]
    return body, choice


def parts(choice: dict[str, Any]) -> tuple[str | None, str | None]:
    message = choice["message"]
    assert message["reasoning"] == message["reasoning_content"]
    return message["reasoning_content"], message["content"]


@pytest.mark.parametrize("tokens_per_step", [1, 5, 100])
def test_the_model_opens_it(server: Server, script: Spoken, tokens_per_step: int) -> None:
    script.tokens_per_step = tokens_per_step
    script.say(THINK_ID, "\nwhy\n", END_THINK_ID, "\n\nso")
    body, choice = both(server)
    assert parts(choice) == ("why", "so")
    # The markers count as reasoning, the end token does not.
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": 7}
    assert body["usage"]["completion_tokens"] == 12


@pytest.mark.parametrize("tokens_per_step", [1, 5, 100])
def test_the_prompt_opens_it(server: Server, script: Spoken, tokens_per_step: int) -> None:
    script.tokens_per_step = tokens_per_step
    script.say("why\n</think>\n\nso")
    body, choice = both(server, **THINKING)
    assert parts(choice) == ("why", "so")
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": 12}
    script.say("why")
    assert parts(both(server, **THINKING)[1]) == ("why", None)
    _, choice = both(server, **THINKING, max_tokens=2)
    assert parts(choice) == ("wh", None) and choice["finish_reason"] == "length"
    assert parts(both(server)[1]) == (None, "why")


def test_calls_behind_it(server: Server, script: Spoken) -> None:
    script.say(f"I use {CALL}\n</think>\n\n{CALL}")
    _, choice = both(server, **THINKING, tools=TOOLS)
    assert parts(choice) == (f"I use {CALL}", None)
    assert len(choice["message"]["tool_calls"]) == 1
    assert choice["finish_reason"] == "tool_calls"


def test_it_can_be_left_out_or_left_in(server: Server, script: Spoken) -> None:
    script.say("why</think>so")
    assert parts(both(server, **THINKING, include_reasoning=False)[1]) == (None, "so")
    body, choice = both(server, **THINKING, separate_reasoning=False)
    assert parts(choice) == (None, "why</think>so")
    assert "completion_tokens_details" not in body["usage"]
    # Completions show what the model says.
    prompt = f"@{MARK}"
    assert server.complete(prompt, max_tokens=99)["choices"][0]["text"] == "why</think>so"
    refused = server.post("/v1/completions", {"prompt": prompt, "include_reasoning": False})
    assert refused.json()["error"]["param"] == "include_reasoning"


def test_a_continued_message(server: Server, script: Spoken) -> None:
    # The mark stands inside, three bytes before the prompt's end.
    messages = [*MESSAGES, {"role": "assistant", "content": f"<think>{MARK}bec"}]
    script.say("...ause</think>so")
    _, choice = both(server, messages=messages, continue_final_message=True)
    assert parts(choice) == ("ause", "so")
    messages[-1]["content"] = [{"type": "text", "text": f"<think>x</think>{MARK}bec"}]
    _, choice = both(server, messages=messages, continue_final_message=True)
    assert parts(choice) == (None, "ause</think>so")


def test_log_probabilities_ride_along(server: Server, script: Spoken) -> None:
    script.say("why\n</think>\n\nso")
    _, choice = both(server, **THINKING, logprobs=True, return_token_ids=True)
    events = server.events(CHAT, messages=MESSAGES, **THINKING, logprobs=True)
    entries = [
        entry
        for event in events
        for entry in event["choices"][0].get("logprobs", {}).get("content", [])
    ]
    assert entries == choice["logprobs"]["content"]
    assert [entry["token"] for entry in entries][:3] == ["w", "h", "y"]


def test_the_official_client(server: Server, script: Spoken) -> None:
    script.say("why</think>so")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        create = client.chat.completions.create
        answer: Any = create(model="m", messages=MESSAGES, extra_body=THINKING)
        assert answer.choices[0].message.reasoning_content == "why"
        assert answer.usage.completion_tokens_details.reasoning_tokens == 11
        chunks: Any = create(model="m", messages=MESSAGES, extra_body=THINKING, stream=True)
        found = ["", ""]
        for chunk in chunks:
            delta = chunk.choices[0].delta
            found[0] += getattr(delta, "reasoning_content", "")
            found[1] += delta.content or ""
        assert found == ["why", "so"]
