"""Any value of JSON at any place of a request: answered or refused, and never a fault of ours."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from pegainfer_server.parsing import ChatParsers

from pegainfer_core.text import REASONING_PARSERS, TOOL_PARSERS

from .scripted_engine import Script
from .served import Server, serving
from .spoken import TEMPLATE

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = {"type": "object", "properties": {"a": {"enum": ["b"]}}, "required": ["a"]}
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA, "strict": False}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TEXT_FORMAT = {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "reasoning_content": "r", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "x"}]},
        ],
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "chat_template_kwargs": {"enable_thinking": True},
        "max_tokens": 1,
    },
    "/v1/responses": {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "s"}],
                "content": [{"type": "reasoning_text", "text": "t"}],
            },
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": [{"type": "input_text", "text": "x"}],
            },
            {"type": "message", "role": "developer", "content": "z"},
        ],
        "instructions": "i",
        "tools": [
            {"type": "function", **FUNCTION},
            {"type": "namespace", "name": "ns", "tools": [{"type": "function", **FUNCTION}]},
        ],
        "tool_choice": {"type": "function", "name": "f", "namespace": "ns"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "include": ["reasoning.encrypted_content"],
        "metadata": {"a": "b"},
        "max_output_tokens": 1,
    },
    "/v1/messages": {
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "t", "signature": "s"},
                    {"type": "text", "text": "u"},
                    {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c",
                        "content": [{"type": "text", "text": "r"}],
                        "is_error": True,
                    },
                    {"type": "text", "text": "q"},
                ],
            },
        ],
        "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA}],
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 5},
        "output_config": {"effort": "low"},
        "stop_sequences": ["a"],
        "max_tokens": 1,
    },
}
FORMS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": "hi"}],
        "response_format": {"type": "json_schema", "json_schema": TEXT_FORMAT},
        "max_tokens": 1,
    },
    "/v1/responses": {"input": "hi", "text": {"format": TEXT_FORMAT}, "max_output_tokens": 1},
    "/v1/messages": {
        "messages": [{"role": "user", "content": "hi"}],
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        "max_tokens": 1,
    },
}
STRANGE: list[Any] = [None, -1.5, 2**64, "", "x" * 9000, [], {}, [None], {"type": []}]


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    parsers = ChatParsers(reasoning=REASONING_PARSERS["think"], tools=TOOL_PARSERS["hermes"])
    folder, script = tmp_path_factory.mktemp("model"), Script(structured=True)
    with serving(folder, script, chat_template=TEMPLATE, parsers=parsers) as server:
        yield server


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to everything in a value."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def changed(body: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    copied = copy.deepcopy(body)
    holder: Any = copied
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return copied


@pytest.mark.parametrize("bodies", [BODIES, FORMS], ids=["conversations", "forms"])
@pytest.mark.parametrize("path", BODIES)
def test_no_value_at_any_place_is_our_fault(
    path: str, bodies: dict[str, dict[str, Any]], talker: Server
) -> None:
    plain = talker.post(path, bodies[path])
    assert plain.status_code == 200, plain.text
    for place in places(bodies[path]):
        for value in STRANGE:
            response = talker.post(path, changed(bodies[path], place, value))
            told = f"{place} {json.dumps(value)[:80]}: {response.text[:300]}"
            assert response.status_code in (200, 400, 404), told
            assert response.status_code == 200 or len(response.text) < 4000, told
