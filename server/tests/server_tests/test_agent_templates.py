"""Conversations of coding agents, rendered by released chat templates."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pegainfer_server.protocol.messages_request import CountTokensRequest
from pegainfer_server.protocol.responses_request import ResponsesRequest
from pegainfer_server.translation.conversation import Conversation
from pegainfer_server.translation.messages_chat import messages_chat, messages_conversation
from pegainfer_server.translation.responses_chat import responses_chat, responses_conversation

from pegainfer_core.text import ChatTemplate
from pegainfer_core.text.template_files import TemplateSource
from tests.real_inputs import shared_folder

pytestmark = pytest.mark.real_inputs

_NAMES = [
    "Kimi-K2-Instruct",
    "Qwen-Qwen3-0.6B",
    "Qwen3-Coder",
    "Qwen3.5-4B",
    "deepseek-ai-DeepSeek-V3.1",
]
_SCHEMA = {"type": "object", "properties": {"cmd": {"type": "string"}}}
_RESPONSES: dict[str, Any] = {
    "instructions": "You code.",
    "input": [
        {"role": "developer", "content": [{"type": "input_text", "text": "Sandboxed."}]},
        {"role": "user", "content": [{"type": "input_text", "text": "List it."}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "c1", "name": "sh", "arguments": '{"cmd": "ls -la"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
        {"role": "developer", "content": [{"type": "input_text", "text": "Be quick."}]},
    ],
    "tools": [{"type": "function", "name": "sh", "parameters": _SCHEMA, "strict": False}],
    "reasoning": {"effort": "high"},
}
_MESSAGES: dict[str, Any] = {
    "system": [{"type": "text", "text": "You code."}, {"type": "text", "text": "Sandboxed."}],
    "messages": [
        {"role": "user", "content": "List it."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "unsigned"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "sh", "input": {"cmd": "ls -la"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a.py"}],
        },
        {"role": "system", "content": "Be quick."},
    ],
    "tools": [{"name": "sh", "input_schema": _SCHEMA}],
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "high"},
}


def _conversations() -> list[tuple[Conversation, Any]]:
    response = msgspec.convert(_RESPONSES, ResponsesRequest)
    message = msgspec.convert(_MESSAGES, CountTokensRequest)
    first, second = responses_conversation(response), messages_conversation(message)
    return [(first, responses_chat(response, first)), (second, messages_chat(message, second))]


@pytest.mark.parametrize("name", _NAMES)
def test_both_apis_become_the_same_prompt(name: str) -> None:
    text = (shared_folder("data/chat_templates") / f"{name}.jinja").read_text(encoding="utf-8")
    template = ChatTemplate({"default": TemplateSource(text=text, origin=name)}, {}, name)
    rendered = [
        template.render(
            [msgspec.to_builtins(message) for message in chat.messages],
            tools=chat.tools,
            template_kwargs={"enable_thinking": True, "thinking": True},
        )
        for _, chat in _conversations()
    ]
    assert rendered[0] == rendered[1]
    places = [
        rendered[0].find(word)
        for word in ("You code.\nSandboxed.", "List it.", "I look.", "ls -la", "a.py", "Be quick.")
    ]
    assert places == sorted(places) and places[0] >= 0
