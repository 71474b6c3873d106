from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pegainfer_core.text import StopMatcher

_FEW_LETTERS = st.text("ab#", max_size=14)
_STOPS = st.lists(st.text("ab#", min_size=1, max_size=5), max_size=4)


def _pieces(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


def _expected(text: str, stops: list[str], include: bool) -> tuple[str, str | None]:
    """The definition, character by character: stop at the first end of any stop string."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            stop = max(complete, key=len)
            return text[: end if include else end - len(stop)], stop
    return text, None


@given(text=_FEW_LETTERS, stops=_STOPS, cuts=st.lists(st.integers(0, 14)), include=st.booleans())
@example(text="aab", stops=["aab", "ab"], cuts=[1, 2], include=False)
@example(text="abab#", stops=["abab##", "b"], cuts=[3], include=False)
@settings(max_examples=250, deadline=None)
def test_any_cutting_equals_one_search(
    text: str, stops: list[str], cuts: list[int], include: bool
) -> None:
    matcher = StopMatcher(stops, include_stop=include)
    shown = ""
    for piece in _pieces(text, cuts):
        shown += matcher.push(piece)
        # What is out can never be taken back.
        assert _expected(text, stops, include)[0].startswith(shown)
    shown += matcher.flush()
    assert (shown, matcher.matched) == _expected(text, stops, include)


@given(text=_FEW_LETTERS, stops=_STOPS)
@settings(max_examples=150, deadline=None)
def test_only_what_could_begin_a_stop_string_is_held_back(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    shown = ""
    for index, char in enumerate(text):
        shown += matcher.push(char)
        if matcher.matched is None:
            held = text[len(shown) : index + 1]
            assert held == "" or any(stop.startswith(held) for stop in stops)


def test_inside_one_piece() -> None:
    for stops in (["##"], ["cd", "##"]):
        matcher = StopMatcher(stops)
        assert matcher.push("A") + matcher.push("ab##cd") == "Aab"
        assert matcher.matched == "##"
        assert matcher.push("Z") + matcher.flush() == ""


def test_include_shows_the_stop_string_and_nothing_after() -> None:
    matcher = StopMatcher(["##"], include_stop=True)
    assert matcher.push("ab##cd") == "ab##"


def test_hidden_text_that_is_a_stop_string() -> None:
    matcher = StopMatcher(["<turn>"])
    assert matcher.push("ok.") == "ok."
    assert matcher.push_hidden("<turn>") == ""
    assert matcher.matched == "<turn>"
    shown = StopMatcher(["<turn>"], include_stop=True)
    assert shown.push("ok.") + shown.push_hidden("<turn>") == "ok.<turn>"


def test_stop_string_that_ends_in_hidden_text() -> None:
    matcher = StopMatcher(["\n<turn>"])
    assert matcher.push("ok\n") == "ok"
    assert matcher.push_hidden("<turn>") == ""
    assert matcher.matched == "\n<turn>"
    assert matcher.flush() == ""


def test_other_hidden_text_leaves_no_trace() -> None:
    matcher = StopMatcher(["ab", "urn", "<turn>x", "q<turn>"])
    assert matcher.push("a") == ""
    assert matcher.push_hidden("<turn>") == ""
    assert matcher.matched is None
    assert matcher.push("b") == ""
    assert matcher.matched == "ab"


def test_unfinished_characters_before_hidden_text_are_shown() -> None:
    matcher = StopMatcher(["<turn>"])
    assert matcher.push_hidden("<turn>", "\ufffd") == "\ufffd"


def test_long_stop_string_costs_no_more_than_its_length() -> None:
    matcher = StopMatcher(["a" * 20_000 + "b"])
    assert matcher.push("a" * 30_000) == "a" * 10_000
    assert matcher.push("b") == ""
    assert matcher.matched is not None


def test_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(["x", ""])


def test_no_stop_strings() -> None:
    matcher = StopMatcher([])
    assert matcher.push("abc") == "abc"
    assert matcher.push_hidden("<turn>") == ""
    assert matcher.flush() == ""
