"""The released chat templates, by known facts and against transformers' own rendering."""

import json
from functools import cache
from pathlib import Path

import jinja2
import pytest

from pegainfer_core.text import ChatTemplate, ChatTemplateError, prompt_ends_in_reasoning
from pegainfer_core.text.template_files import TemplateSource
from tests.real_inputs import shared_folder

pytestmark = pytest.mark.real_inputs

Messages = list[dict[str, object]]

_NAMES = [
    "Kimi-K2-Instruct",
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "Qwen3-Coder",
    "Qwen3.5-4B",
    "deepseek-ai-DeepSeek-V3.1",
]
_SPECIAL = {"bos_token": "<B>", "eos_token": "<E>"}
_TOOLS: Messages = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Weather & <more> für eine Stadt",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "enum": ["Köln", "서울"]}},
                "required": ["city"],
            },
        },
    }
]


@cache
def _source(name: str) -> str:
    return (shared_folder("data/chat_templates") / f"{name}.jinja").read_text(encoding="utf-8")


@cache
def _chat(name: str) -> ChatTemplate:
    source = TemplateSource(text=_source(name), origin=name)
    return ChatTemplate({"default": source}, _SPECIAL, name)


def _called(arguments: object, content: object = "") -> Messages:
    function = {"name": "weather", "arguments": arguments}
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather in Köln?"},
        {
            "role": "assistant",
            "content": content,
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "rain <5 °C>"},
    ]


_CONVERSATIONS: dict[str, Messages] = {
    "user": [{"role": "user", "content": "Hi"}],
    "system": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}],
    "turns": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nb"},
        {"role": "user", "content": "c <think>"},
    ],
    "reasoning": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "why"},
        {"role": "user", "content": "c"},
    ],
    "calls": _called({"city": "Köln", "days": [1, 2], "opts": {"x": None}}),
    "calls with text": _called({"city": "서울"}, "I will look."),
    "assistant last": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b  "}],
}


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize(
    ("text", "mapping"), [('{"city":"Köln"}', {"city": "Köln"}), ("", {}), (None, {})]
)
def test_arguments_as_text_and_as_mapping_are_equal(
    name: str, text: str | None, mapping: dict[str, str]
) -> None:
    chat = _chat(name)
    rendered = chat.render(_called(text, None), tools=_TOOLS)
    assert rendered == chat.render(_called(mapping), tools=_TOOLS)
    assert "None" not in rendered
    assert '\\"' not in rendered
    if mapping:
        expected = "<parameter=city>\nKöln\n" if "5-4B" in name or "Coder" in name else None
        assert (expected or '{"city": "Köln"}') in rendered


@pytest.mark.parametrize("name", _NAMES)
def test_broken_arguments_and_image_parts_are_refused(name: str) -> None:
    chat = _chat(name)
    with pytest.raises(ChatTemplateError, match=r"arguments is not valid JSON"):
        chat.render(_called('{"n":'), tools=_TOOLS)
    image = [{"type": "image_url", "image_url": {"url": "data:,"}}]
    with pytest.raises(ChatTemplateError, match=r"'image_url'; this model takes text"):
        chat.render([{"role": "user", "content": image}])


@pytest.mark.parametrize("name", _NAMES)
def test_parts_are_one_text(name: str) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    rendered = _chat(name).render([{"role": "user", "content": parts}])
    assert "one\ntwo" in rendered


def test_the_templates_own_refusal() -> None:
    with pytest.raises(ChatTemplateError, match=r"^No user query found in messages\.$"):
        _chat("Qwen3.5-4B").render([{"role": "system", "content": "x"}])


@pytest.mark.parametrize(
    ("name", "kwargs", "expected"),
    [
        ("Qwen-Qwen3-0.6B", {}, False),
        ("Qwen-Qwen3-0.6B", {"enable_thinking": False}, False),
        ("Qwen3.5-4B", {}, True),
        ("Qwen3.5-4B", {"enable_thinking": False}, False),
        ("deepseek-ai-DeepSeek-V3.1", {}, False),
        ("deepseek-ai-DeepSeek-V3.1", {"thinking": True}, True),
        ("Kimi-K2-Instruct", {}, False),
    ],
)
def test_reasoning_state(name: str, kwargs: dict[str, object], expected: bool) -> None:
    rendered = _chat(name).render(_CONVERSATIONS["user"], template_kwargs=kwargs)
    assert prompt_ends_in_reasoning(rendered) is expected


def test_kimi_numbers_its_calls() -> None:
    rendered = _chat("Kimi-K2-Instruct").render(_called("{}"), tools=_TOOLS)
    assert "<|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{}" in rendered
    assert "## Return of functions.weather:0\nrain <5 °C>" in rendered


def test_qwen3_of_the_release_is_the_shared_one(qwen3_folder: Path) -> None:
    assert ChatTemplate.from_dir(qwen3_folder).sources == {"default": _source("Qwen-Qwen3-0.6B")}


@pytest.mark.hf
@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("conversation", _CONVERSATIONS)
@pytest.mark.parametrize("with_tools", [False, True])
@pytest.mark.parametrize("ending", ["generation", "none", "continued"])
def test_same_text_as_transformers(
    name: str, conversation: str, with_tools: bool, ending: str
) -> None:
    rendering = pytest.importorskip("transformers.utils.chat_template_utils")
    messages = _CONVERSATIONS[conversation]
    tools = _TOOLS if with_tools else None
    settings = {
        "add_generation_prompt": ending == "generation",
        "continue_final_message": ending == "continued",
    }
    try:
        ((expected,), _) = rendering.render_jinja_template(
            [json.loads(json.dumps(messages))],
            tools=tools,
            chat_template=_source(name),
            **settings,
            **_SPECIAL,
        )
    except jinja2.exceptions.SecurityError:
        # Their sandbox forbids the list that Kimi's template appends to.
        rendered = _chat(name).render(messages, tools=tools, **settings)
        assert "<|tool_call_begin|>functions.weather:0<" in rendered
        return
    except ValueError:
        assert ending == "continued"
        with pytest.raises(ChatTemplateError, match=r"leaves out the final message"):
            _chat(name).render(messages, tools=tools, **settings)
        return
    assert _chat(name).render(messages, tools=tools, **settings) == expected


@pytest.mark.hf
@pytest.mark.parametrize("thinking", [None, False, True])
def test_same_ids_as_transformers(qwen3_folder: Path, thinking: bool | None) -> None:
    transformers = pytest.importorskip("transformers")
    from pegainfer_core.text import Tokenizer

    theirs = transformers.AutoTokenizer.from_pretrained(str(qwen3_folder))
    chat, ours = ChatTemplate.from_dir(qwen3_folder), Tokenizer.from_dir(qwen3_folder)
    kwargs = {} if thinking is None else {"enable_thinking": thinking}
    for messages in _CONVERSATIONS.values():
        rendered = chat.render(messages, tools=_TOOLS, template_kwargs=kwargs)
        expected = theirs.apply_chat_template(
            messages, tools=_TOOLS, add_generation_prompt=True, return_dict=False, **kwargs
        )
        assert ours.encode(rendered, add_special_tokens=False) == expected
        assert ours.decode(expected, True) == theirs.decode(expected, skip_special_tokens=True)
