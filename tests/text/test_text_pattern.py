"""Patterns of schemas become terminals only where both kinds of expression mean the same."""

from __future__ import annotations

import pytest

from pegainfer_core.text.parsing.text_pattern import lark_pattern


@pytest.mark.parametrize(
    ("pattern", "terminal"),
    [
        ("^a$", "/(?:a)/"),
        ("a", "/(?s:.*)(?:a)(?s:.*)/"),
        ("a|b", "/(?s:.*)(?:a|b)(?s:.*)/"),
        ("^(a|b)$", "/(?:(a|b))/"),
        (r"^\d\w\s$", r"/(?:[0-9][A-Za-z0-9_]\s)/"),
        (r"^[\d\w/]*?$", r"/(?:[0-9A-Za-z0-9_\/]*)/"),
        (r"^a/\/[\/]$", r"/(?:a\/\/[\/])/"),
        ("^\n[\n]{1,2}?$", r"/(?:\n[\n]{1,2})/"),
        (r"a\$", r"/(?s:.*)(?:a\$)(?s:.*)/"),
    ],
)
def test_shared_constructs_are_translated(pattern: str, terminal: str) -> None:
    assert lark_pattern(pattern) == terminal


@pytest.mark.parametrize(
    "pattern",
    [
        "^a|b$", "a|b$", "a^b", "a$b", "(?=a)b", "(?!a)b", "(?<=a)b", "(?<n>a)", r"(a)\1", r"\bx\b",
        r"\p{L}", r"\u0041", r"\x41", r"\cA", "(", ")", "a)", "[", "[]", "[^]", "[a", "[[a]]",
        "[a&&b]", "[a--b]", "[a~b]", "*", "a**", "{3}", "a{2", "a{5,2}", "a{99999}", "a\\",
        r"[\w-.]", r"[z-a]", "(?i)a", r"\<",
    ],
)  # fmt: skip
def test_other_patterns_are_left_alone(pattern: str) -> None:
    assert lark_pattern(pattern) is None
