"""Reasoning and content apart, whatever the prompt opened and however the text is cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegainfer_core.text import REASONING_PARSERS, TOOL_PARSERS, AnswerDelta, AnswerParser
from tests.text.parsed import calls_of, cut_texts, parse

THINK = REASONING_PARSERS["think"]
OPEN, CLOSED, PLAIN = "user\n<think>\n", "user\n<think>\n\n</think>\n\n", "user\n"

#: Prompt, continued text, answer, reasoning, content.
CASES = [
    (OPEN, "", "why\n</think>\n\nso", "why", "so"),
    (OPEN, "", "why", "why", ""),
    (OPEN, "", "4", "4", ""),
    (OPEN, "", "why\n", "why\n", ""),
    (OPEN, "", "a\n\nb</think>c\n", "a\n\nb", "c\n"),
    (OPEN, "", "</think>\n\nso", "", "so"),
    (OPEN, "", "<think>\nwhy</think>so", "why", "so"),
    (OPEN, "", "a <think> b</think>c </think> d", "a <think> b", "c </think> d"),
    (OPEN, "", "a </thin", "a </thin", ""),
    (CLOSED, "", "4", "", "4"),
    (CLOSED, "", "\n4\n", "", "\n4\n"),
    (PLAIN, "", "<think>\nwhy\n</think>\n\nso", "why", "so"),
    (PLAIN, "", "\n <think>why", "why", ""),
    (PLAIN, "", "so <think>x</think>", "", "so <think>x</think>"),
    (PLAIN, "", "x</think>y", "", "x</think>y"),
    (PLAIN, "", "<thin", "", "<thin"),
    (PLAIN, "", " \n", "", " \n"),
    (PLAIN, "", "", "", ""),
    ("user <think>", "", "why", "why", ""),
    ("u\n<think>\nbec", "<think>\nbec", "ause</think>so", "ause", "so"),
    ("u\n<think>\nx</think>a", "<think>\nx</think>a", "nd\n", "", "nd\n"),
    ("u\nso", "so", "<think>x", "", "<think>x"),
]


@pytest.mark.parametrize(("prompt", "continued", "text", "reasoning", "content"), CASES)
def test_what_is_reasoning(
    prompt: str, continued: str, text: str, reasoning: str, content: str
) -> None:
    expected = AnswerDelta(reasoning=reasoning, content=content)
    assert parse(THINK(prompt, continued), [text]) == expected
    assert parse(THINK(prompt, continued), list(text)) == expected


def test_it_tells_where_the_text_is() -> None:
    parser = THINK(OPEN, "")
    states = []
    for piece in ("", "a", "</think", ">", "\n", "b"):
        parser.feed(piece)
        states.append(parser.in_reasoning)
    assert states == [True, True, True, False, False, False]


_TEXTS = st.lists(
    st.sampled_from(["<think>", "</think>", "<th", "\n", " ", "x", "ab\n"]), max_size=10
).map("".join)


@settings(max_examples=100, deadline=None)
@given(pieces=cut_texts(_TEXTS), prompt=st.sampled_from([OPEN, CLOSED, PLAIN]))
def test_no_cut_changes_anything(pieces: list[str], prompt: str) -> None:
    text = "".join(pieces)
    found = parse(THINK(prompt, ""), [text])
    assert parse(THINK(prompt, ""), pieces) == found
    for letter in "xab":
        assert (found.reasoning + found.content).count(letter) == text.count(letter)
    if not found.reasoning and "think>" not in text:
        assert found.content == (text if prompt != OPEN else "")


CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'


def test_calls_are_looked_for_behind_the_reasoning() -> None:
    text = f"I may use {CALL}.\n</think>\n\nSo:\n{CALL}"
    for pieces in ([text], list(text)):
        found = parse(AnswerParser(THINK(OPEN, ""), TOOL_PARSERS["hermes"]([])), pieces)
        assert found.reasoning == f"I may use {CALL}."
        assert found.content == "So:"
        assert calls_of(found) == [("f", "{}")]


def test_either_parser_alone_and_none() -> None:
    text = f"<think>a</think>{CALL}"
    assert parse(AnswerParser(), [text]) == AnswerDelta(content=text)
    assert parse(AnswerParser(THINK(PLAIN, "")), [text]) == AnswerDelta(reasoning="a", content=CALL)
    found = parse(AnswerParser(tools=TOOL_PARSERS["hermes"]([])), [text])
    assert (found.content, calls_of(found)) == ("<think>a</think>", [("f", "{}")])
    both = AnswerParser(THINK(PLAIN, ""), TOOL_PARSERS["hermes"]([]))
    assert both.tags == ["<think>", "</think>", "<tool_call>", "</tool_call>"]
    assert AnswerParser().tags == [] and not AnswerParser().in_reasoning
