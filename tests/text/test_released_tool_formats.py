"""What released templates write of a call, the parser of that format reads back."""

from __future__ import annotations

import json

import pytest

from pegainfer_core.text import TOOL_PARSERS, ChatTemplate
from pegainfer_core.text.template_files import TemplateSource
from tests.real_inputs import shared_folder
from tests.text.parsed import parse

pytestmark = pytest.mark.real_inputs

#: Template, parser, and what ends an assistant's turn.
FORMATS = [
    ("Qwen-Qwen2.5-7B-Instruct", "hermes", "<|im_end|>"),
    ("Qwen-Qwen3-0.6B", "hermes", "<|im_end|>"),
    ("Qwen3-Coder", "qwen3_coder", "<|im_end|>"),
    ("Qwen3.5-4B", "qwen3_coder", "<|im_end|>"),
    ("deepseek-ai-DeepSeek-V3.1", "deepseek", "<｜end▁of▁sentence｜>"),
    ("Kimi-K2-Instruct", "kimi_k2", "<|im_end|>"),
]
CALLS = [
    ("weather", {"city": 'Köln <b> "한"\nx', "days": 3, "opts": {"x": [1, None]}, "all": True}),
    ("time", {}),
]
TYPES = {"city": "string", "days": "integer", "opts": "object", "all": "boolean"}
PROPERTIES = {name: {"type": kind} for name, kind in TYPES.items()}
TOOLS: list[dict[str, object]] = [
    {"type": "function", "function": {"name": name, "description": "d", "parameters": parameters}}
    for name, parameters in (
        ("weather", {"type": "object", "properties": PROPERTIES}),
        ("time", {"type": "object", "properties": {}}),
    )
]


@pytest.mark.parametrize(("name", "parser", "end"), FORMATS)
@pytest.mark.parametrize("content", ["", "I will look."])
def test_the_way_back(name: str, parser: str, end: str, content: str) -> None:
    path = shared_folder("data/chat_templates") / f"{name}.jinja"
    source = TemplateSource(text=path.read_text(encoding="utf-8"), origin=name)
    chat = ChatTemplate({"default": source}, {"bos_token": "", "eos_token": ""}, name)
    calls = [
        {"id": f"c{i}", "type": "function", "function": {"name": f, "arguments": json.dumps(a)}}
        for i, (f, a) in enumerate(CALLS)
    ]
    turn = {"role": "assistant", "content": content, "tool_calls": calls}
    asked = [{"role": "user", "content": "?"}]
    before = chat.render(asked, tools=TOOLS, add_generation_prompt=False)
    after = chat.render([*asked, turn], tools=TOOLS, add_generation_prompt=False)
    assert after.startswith(before)
    answer = after[len(before) :].rpartition(end)[0]
    found = parse(TOOL_PARSERS[parser](TOOLS), list(answer))
    assert [(c.name, json.loads(c.arguments)) for c in found.tool_calls] == CALLS
    assert content in found.content and "call" not in found.content
    if parser == "kimi_k2":
        assert [c.id for c in found.tool_calls] == ["functions.weather:0", "functions.time:1"]
