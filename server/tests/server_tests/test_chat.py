"""`/v1/chat/completions`: rendering, limits, the events of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .scripted_engine import chain
from .served import Server, serving

PATH = "/v1/chat/completions"
USER = [{"role": "user", "content": "hey"}]
STRICT_TEMPLATE = (
    "{% if messages|selectattr('role', 'equalto', 'user')|list|length == 0 %}"
    "{{ raise_exception('need user') }}{% endif %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<{{ c.function.name }} "
    "{{ c.function.arguments|tojson }}>{% endfor %}{% endfor %}"
    "{% if enable_thinking is defined %}(thinking {{ enable_thinking }}){% endif %}"
    "{% if add_generation_prompt %}>{% endif %}"
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("chat"), chat_template=STRICT_TEMPLATE) as server:
        yield server


def ask(server: Server, messages: object = USER, **fields: object) -> dict[str, Any]:
    response = server.post(PATH, {"messages": messages, **fields})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def rendered(server: Server, messages: object, **fields: object) -> str:
    ask(server, messages, max_tokens=1, **fields)
    return bytes(server.script.requests[-1].prompt_token_ids).decode()


def refused(server: Server, messages: object, **fields: object) -> dict[str, Any]:
    response = server.post(PATH, {"messages": messages, **fields})
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    return error


def test_answers_have_openais_shape(server: Server) -> None:
    server.script.table = chain(">", "o", "k", 256)
    answer = ask(server)
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    choice = answer["choices"][0]
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"] == "ok"
    assert choice["message"]["tool_calls"] is None
    assert (choice["finish_reason"], choice["logprobs"]) == ("stop", None)
    assert answer["usage"]["completion_tokens"] == 3


def test_a_stream_is_role_then_content_then_finish_then_usage(server: Server) -> None:
    server.script.table = chain(">", *"é!".encode(), 256)
    chunks = server.events(PATH, messages=USER, stream_options={"include_usage": True})
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    *parts, usage = chunks
    assert [part["choices"][0]["delta"] for part in parts] == [
        {"role": "assistant", "content": ""},
        {"content": "é"},
        {"content": "!"},
        {},
    ]
    assert [part["choices"][0]["finish_reason"] for part in parts] == [None, None, None, "stop"]
    assert parts[-1]["choices"][0]["stop_reason"] is None
    assert usage["choices"] == []
    assert usage["usage"] == ask(server)["usage"]


def test_detailed_streams_carry_logprobs_and_ids(server: Server) -> None:
    server.script.table = chain(">", 0xC3, 0xA9, 256)
    fields: dict[str, Any] = {"logprobs": True, "top_logprobs": 2, "return_token_ids": True}
    whole = ask(server, **fields)
    chunks = server.events(PATH, messages=USER, **fields)
    assert chunks[0]["prompt_token_ids"] == whole["prompt_token_ids"]
    choices = [chunk["choices"][0] for chunk in chunks]
    ids = [token_id for choice in choices for token_id in choice.get("token_ids", [])]
    assert ids == whole["choices"][0]["token_ids"] == [0xC3, 0xA9, 256]
    entries = [e for choice in choices for e in choice.get("logprobs", {"content": []})["content"]]
    assert entries == whole["choices"][0]["logprobs"]["content"]
    assert entries[0] == {
        "token": "bytes:\\xc3",
        "logprob": -0.25,
        "bytes": [0xC3],
        "top_logprobs": [
            {"token": "bytes:\\xc3", "logprob": -0.25, "bytes": [0xC3]},
            {"token": "bytes:\\xc4", "logprob": -1.25, "bytes": [0xC4]},
        ],
    }
    assert "".join(choice["delta"].get("content", "") for choice in choices) == "é"


def test_without_a_limit_the_context_is_filled(server: Server) -> None:
    server.script.table = {ord(">"): ord("a"), ord("a"): ord("a")}
    answer = ask(server)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == 4096


def test_names_of_the_limit(server: Server) -> None:
    server.script.table = {ord(">"): ord("a"), ord("a"): ord("a")}
    assert ask(server, max_completion_tokens=3)["usage"]["completion_tokens"] == 3
    assert ask(server, max_tokens=4)["usage"]["completion_tokens"] == 4
    assert ask(server, max_tokens=4, max_completion_tokens=4)["choices"]
    error = refused(server, USER, max_tokens=5, max_completion_tokens=7)
    assert error["param"] == "max_completion_tokens"
    assert refused(server, USER, max_tokens=0)["param"] == "$.max_tokens"


def test_text_parts_are_joined_in_order(server: Server) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    messages = [{"role": "user", "content": parts}]
    assert rendered(server, messages) == "[user]one\ntwo>"
    tool = [*USER, {"role": "tool", "tool_call_id": "c", "content": parts}]
    assert rendered(server, tool) == "[user]hey[tool]one\ntwo>"


@pytest.mark.parametrize("content", [{"content": None}, {"content": []}, {}])
def test_absent_content_is_empty(server: Server, content: dict[str, object]) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"n":3}'}}
    assistant = {"role": "assistant", "tool_calls": [call], **content}
    tool = {"role": "tool", "tool_call_id": "c1", "content": "5"}
    assert rendered(server, [*USER, assistant, tool]) == (
        '[user]hey[assistant]<f {"n": 3}>[tool]5>'
    )


def test_broken_messages_are_the_clients_fault(server: Server) -> None:
    assert refused(server, [])["param"] == "messages"
    assert "need user" in refused(server, [{"role": "system", "content": "x"}])["message"]
    image = [{"type": "image_url", "image_url": {"url": "data:"}}]
    assert (
        refused(server, [{"role": "user", "content": image}])["param"] == "messages[0].content[0]"
    )
    assert refused(server, [{"role": "bard", "content": "x"}])["param"] == "$.messages[0].role"
    assert refused(server, [{"content": "x"}])["param"] == "$.messages[0].role"
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"n":'}}
    broken = [*USER, {"role": "assistant", "tool_calls": [call]}]
    assert refused(server, broken)["param"] == "messages[1].tool_calls[0].function.arguments"


def test_the_developer_speaks_as_system(server: Server) -> None:
    messages = [{"role": "developer", "content": "be brief"}, *USER]
    assert rendered(server, messages) == "[system]be brief[user]hey>"


def test_thinking_switches(server: Server) -> None:
    off = rendered(server, USER, reasoning_effort="none")
    assert off == "[user]hey(thinking False)>"
    assert rendered(server, USER, reasoning_effort="low") == "[user]hey(thinking True)>"
    kwargs = {"enable_thinking": False}
    assert rendered(server, USER, chat_template_kwargs=kwargs) == off
    assert refused(server, USER, reasoning_effort="deep")["param"] == "reasoning_effort"
    assert (
        "chat_template_kwargs"
        in refused(server, USER, chat_template_kwargs={"messages": []})["message"]
    )


def test_the_last_message_can_be_continued(server: Server) -> None:
    messages = [*USER, {"role": "assistant", "content": "Sure,"}]
    fields = {"continue_final_message": True, "add_generation_prompt": False}
    assert rendered(server, messages, **fields) == "[user]hey[assistant]Sure,"
    assert rendered(server, messages, continue_final_message=True).endswith("Sure,")
    both = {"continue_final_message": True, "add_generation_prompt": True}
    assert refused(server, messages, **both)["param"] == "continue_final_message"
    assert rendered(server, USER, add_generation_prompt=False) == "[user]hey"


def test_one_bos_whoever_writes_it(folder: Path) -> None:
    template = "{{ bos_token }}" + STRICT_TEMPLATE
    with serving(folder, chat_template=template, prepend_bos=True) as server:
        ask(server)
        ids = server.script.requests[-1].prompt_token_ids
        assert ids.count(261) == 1
        assert ids[0] == 261
        assert server.complete("Hi")["usage"]["prompt_tokens"] == 3
        assert server.complete("")["usage"]["prompt_tokens"] == 1
        assert server.complete("Hi", add_special_tokens=False)["usage"]["prompt_tokens"] == 2


def test_logprob_counts_must_make_sense(server: Server) -> None:
    assert refused(server, USER, top_logprobs=2)["param"] == "top_logprobs"
    error = refused(server, USER, logprobs=True, top_logprobs=1000)
    assert error["param"] == "top_logprobs"
    assert "top_logprobs" in error["message"]
    assert ask(server, top_logprobs=0)["choices"][0]["logprobs"] is None
