"""The examples of the parser hooks do what they say, however their text is cut."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pegainfer_core.text import AnswerDelta, join_deltas
from tests.docs.pages import PLUGIN_DOCS


def offered(hook: str) -> Any:
    """The factory that a hook's example offers."""
    text = (PLUGIN_DOCS / "hooks.md").read_text(encoding="utf-8")
    match = re.compile(r"```python\n(.*?)```", re.DOTALL).search(
        text, text.index(f"### `{hook}()`")
    )
    assert match is not None
    namespace: dict[str, Any] = {}
    exec(compile(match[1], hook, "exec"), namespace)
    return namespace[hook]()["parrot"]


def parse(parser: Any, pieces: list[str]) -> AnswerDelta:
    return join_deltas([*map(parser.feed, pieces), parser.flush()])


CALL = '[call]weather {"city": "[end]"}[end]'


@pytest.mark.parametrize("size", [1, 3, 100])
def test_the_tool_parser(size: int) -> None:
    text = f"Look: {CALL}\n[call]weather no[end]"
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    found = parse(offered("tool_parsers")([]), pieces)
    (call,) = found.tool_calls
    assert (call.name, call.arguments) == ("weather", '{"city": "[end]"}')
    assert found.content == "Look: [call]weather no[end]"


@pytest.mark.parametrize("size", [1, 3, 100])
def test_the_reasoning_parser(size: int) -> None:
    factory, text = offered("reasoning_parsers"), "why|so|."
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    assert parse(factory("prompt", ""), pieces) == AnswerDelta(reasoning="why", content="so|.")
    assert parse(factory("prompt|\n", ""), pieces) == AnswerDelta(content=text)
