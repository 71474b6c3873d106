"""Reasoning between `<think>` and `</think>`, as Qwen3, Qwen3.5, DeepSeek and Kimi write it.

Reasoning is open when the prompt ends inside the block, or when the answer begins with the opening
tag; tags anywhere else are content. Line breaks next to a tag belong to the tag.
"""

from enum import Enum, auto
from typing import Final

from pegainfer_core.text.parsing.delta import AnswerDelta
from pegainfer_core.text.parsing.line_breaks import split_line_breaks
from pegainfer_core.text.parsing.tag_lexer import Lexeme, TagLexer
from pegainfer_core.text.reasoning_state import prompt_ends_in_reasoning

__all__ = ["ThinkParser"]

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"


class _Place(Enum):
    START = auto()
    """Nothing but white space yet: an opening tag may follow."""
    OPENED = auto()
    """Behind an opening tag: line breaks and a second tag are dropped."""
    REASONING = auto()
    CLOSED = auto()
    """Behind the closing tag: line breaks are dropped."""
    CONTENT = auto()


class ThinkParser:
    """Implements `ReasoningParser` and `MarkedReasoning`; the class is its own factory."""

    tags = (_OPEN, _CLOSE)
    start_tag = _OPEN
    end_tag = _CLOSE

    def __init__(self, prompt: str, continued: str = "") -> None:
        """A parser for the answer to a prompt; see `ReasoningParserFactory`."""
        if prompt_ends_in_reasoning(prompt, continued=continued, start=_OPEN, end=_CLOSE):
            self._place = _Place.REASONING if continued else _Place.OPENED
        else:
            self._place = _Place.CONTENT if continued else _Place.START
        self._lexer = TagLexer(self.tags)
        self._held = ""
        self._reasoning: list[str] = []
        self._content: list[str] = []

    @property
    def in_reasoning(self) -> bool:
        """Whether the text so far ends inside reasoning."""
        return self._place in (_Place.OPENED, _Place.REASONING)

    def feed(self, text: str) -> AnswerDelta:
        """Take the next piece of text."""
        if self._is_content():
            return AnswerDelta(content=text)
        if self._is_only_reasoning(text):
            return AnswerDelta(reasoning=text)
        for lexeme in self._lexer.feed(text):
            self._take(lexeme)
        if self._is_content():
            self._content.append(self._lexer.flush())
        return self._delta()

    def flush(self) -> AnswerDelta:
        """End the text."""
        rest = self._lexer.flush()
        if rest:
            self._take(Lexeme(rest, False))
        if self._place is _Place.START:
            self._content.append(self._held)
        elif self._place is _Place.REASONING:
            self._reasoning.append(self._held)
        return self._delta()

    def _is_content(self) -> bool:
        return self._place is _Place.CONTENT

    def _is_only_reasoning(self, text: str) -> bool:
        """Most pieces are; the rest of the work can be left."""
        if self._place is not _Place.REASONING or self._held or text.endswith("\n"):
            return False
        return self._lexer.is_plain(text)

    def _delta(self) -> AnswerDelta:
        delta = AnswerDelta(reasoning="".join(self._reasoning), content="".join(self._content))
        self._reasoning.clear()
        self._content.clear()
        return delta

    def _take(self, lexeme: Lexeme) -> None:
        if self._place is _Place.START:
            self._start(lexeme)
        elif self._place in (_Place.OPENED, _Place.REASONING):
            self._reason(lexeme)
        elif self._place is _Place.CLOSED:
            self._begin_content(lexeme.text.lstrip("\n"))
        else:
            self._content.append(lexeme.text)

    def _start(self, lexeme: Lexeme) -> None:
        if lexeme == (_OPEN, True):
            self._place, self._held = _Place.OPENED, ""
            return
        self._held += lexeme.text
        if self._held.strip():
            self._begin_content(self._held)
            self._held = ""

    def _begin_content(self, text: str) -> None:
        if text:
            self._place = _Place.CONTENT
            self._content.append(text)

    def _reason(self, lexeme: Lexeme) -> None:
        if lexeme == (_CLOSE, True):
            self._place, self._held = _Place.CLOSED, ""
            return
        text = lexeme.text
        if self._place is _Place.OPENED:
            text = "" if lexeme == (_OPEN, True) else text.lstrip("\n")
            if not text:
                return
            self._place = _Place.REASONING
        shown, self._held = split_line_breaks(self._held + text)
        self._reasoning.append(shown)
