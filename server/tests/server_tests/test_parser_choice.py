"""Who decides how answers are taken apart: the family, and flags before it."""

from __future__ import annotations

import pytest
from pegainfer_server.parsing import ChatParsers

from pegainfer_core.plugin import ChatProfile, HookCalls, HostSettings, PluginFault, PluginHost
from pegainfer_core.text import REASONING_PARSERS, TOOL_PARSERS

FAMILY = ChatProfile(tool_parser="hermes", reasoning_parser="think")


@pytest.fixture(scope="module")
def hooks() -> HookCalls:
    return PluginHost.load(HostSettings(allowed=frozenset())).hooks


def test_core_offers_its_parsers_through_the_hooks(hooks: HookCalls) -> None:
    assert hooks.tool_parsers().names == sorted(TOOL_PARSERS)
    assert hooks.reasoning_parsers().names == sorted(REASONING_PARSERS)


@pytest.mark.parametrize(
    ("profile", "flag", "expected"),
    [
        (FAMILY, None, "hermes"),
        (FAMILY, "kimi_k2", "kimi_k2"),
        (FAMILY, "none", None),
        (ChatProfile(), None, None),
        (ChatProfile(), "deepseek", "deepseek"),
    ],
)
def test_tool_parsers(
    hooks: HookCalls, profile: ChatProfile, flag: str | None, expected: str | None
) -> None:
    chosen = ChatParsers.chosen(hooks, profile, tools=flag)
    assert chosen.tools is (None if expected is None else TOOL_PARSERS[expected])


def test_reasoning_parsers(hooks: HookCalls) -> None:
    think = REASONING_PARSERS["think"]
    assert ChatParsers.chosen(hooks, FAMILY).reasoning is think
    assert ChatParsers.chosen(hooks, FAMILY, reasoning="none").reasoning is None
    assert ChatParsers.chosen(hooks, ChatProfile(), reasoning="think").reasoning is think


def test_unknown_names_are_told_what_there_is(hooks: HookCalls) -> None:
    with pytest.raises(PluginFault, match=r"tool-call parser 'pythonic'; offered: deepseek, herm"):
        ChatParsers.chosen(hooks, FAMILY, tools="pythonic")
    with pytest.raises(PluginFault, match=r"reasoning parser 'r1'; offered: think"):
        ChatParsers.chosen(hooks, FAMILY, reasoning="r1")
