"""Markers in a text that arrives in pieces. Knows no format.

Markers must not overlap: no end of one is a beginning of another.
"""

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from pegainfer_core.text.stop import beginning_at_end

__all__ = ["Lexeme", "TagLexer"]


class Lexeme(NamedTuple):
    """A marker, or text between markers, which may come in several lexemes."""

    text: str
    is_tag: bool


class TagLexer:
    """Cuts text into lexemes; holds back an end that may be the beginning of a marker."""

    __slots__ = ("_first_chars", "_held", "_pattern", "_tags")

    def __init__(self, tags: Collection[str]) -> None:
        """Prepare for one text."""
        self._tags = tuple(tags)
        self._first_chars = frozenset(tag[0] for tag in self._tags)
        self._pattern = re.compile("|".join(map(re.escape, self._tags)))
        self._held = ""

    def is_plain(self, text: str) -> bool:
        """Whether the next piece is text that neither continues nor begins a marker."""
        return not self._held and self._first_chars.isdisjoint(text)

    def feed(self, text: str) -> Iterator[Lexeme]:
        """Lexemes that the next piece settles; none of them is empty."""
        if self.is_plain(text):
            if text:
                yield Lexeme(text, False)
            return
        text = self._held + text
        start = 0
        lexemes: list[Lexeme] = []
        for match in self._pattern.finditer(text):
            lexemes += [Lexeme(text[start : match.start()], False), Lexeme(match[0], True)]
            start = match.end()
        rest = text[start:]
        cut = min(beginning_at_end(tag, rest) for tag in self._tags)
        self._held = rest[cut:]
        lexemes.append(Lexeme(rest[:cut], False))
        yield from (lexeme for lexeme in lexemes if lexeme.text)

    def flush(self) -> str:
        """End the text: return what was held back."""
        text, self._held = self._held, ""
        return text
