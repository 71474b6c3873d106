from pathlib import Path

import pytest

from pegainfer_core.testing.byte_tokenizer import byte_tokenizer
from pegainfer_core.text import ChatTemplate, prompt_ends_in_reasoning

_OPENS_BY_DEFAULT = (
    "{{ messages[0].content }}<assistant>{% if enable_thinking is defined and not enable_thinking"
    " %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}"
)
_CLOSES_BY_DEFAULT = (
    "{{ messages[0].content }}<assistant>{% if enable_thinking %}<think>{% else %}"
    "<think></think>{% endif %}"
)


@pytest.mark.parametrize(
    ("source", "kwargs", "expected"),
    [
        (_OPENS_BY_DEFAULT, {}, True),
        (_OPENS_BY_DEFAULT, {"enable_thinking": True}, True),
        (_OPENS_BY_DEFAULT, {"enable_thinking": False}, False),
        (_CLOSES_BY_DEFAULT, {}, False),
        (_CLOSES_BY_DEFAULT, {"enable_thinking": True}, True),
        (_CLOSES_BY_DEFAULT, {"enable_thinking": False}, False),
    ],
)
@pytest.mark.parametrize("content", ["q", "what does <think> mean?", "</think>"])
def test_the_prompt_decides(
    tmp_path: Path, source: str, kwargs: dict[str, object], expected: bool, content: str
) -> None:
    """Case A12."""
    chat = ChatTemplate.from_dir(byte_tokenizer(tmp_path, chat_template=source))
    rendered = chat.render([{"role": "user", "content": content}], template_kwargs=kwargs)
    assert prompt_ends_in_reasoning(rendered) is expected


@pytest.mark.parametrize(
    ("rendered", "continued", "expected"),
    [
        ("q<assistant><think>\nfirst I", "<think>\nfirst I", True),
        ("q<assistant><think>\nfirst I", "first I", True),
        ("q<assistant><think>\nhm</think>so ", "<think>\nhm</think>so ", False),
        ("q<assistant><think>\n</think>\n\nso", "so", False),
        ("<think><assistant>so", "so", False),
        ("<think><assistant>", "", False),
        ("q<assistant></think> <think>", "</think> <think>", True),
    ],
)
def test_continued_messages(rendered: str, continued: str, expected: bool) -> None:
    assert prompt_ends_in_reasoning(rendered, continued=continued) is expected


def test_other_tags() -> None:
    assert prompt_ends_in_reasoning("q [THINK]", start="[THINK]", end="[/THINK]")
    assert not prompt_ends_in_reasoning("q <think>", start="[THINK]", end="[/THINK]")
