"""Tool calls in a text that arrives in pieces, for any `ToolFormat`.

A call is shown when it is complete and known to be well formed, because what a client was once
told cannot be taken back: a block that is no call, or is cut off, is content, character for
character. Line breaks before and behind a call belong to it.
"""

from enum import Enum, auto
from typing import Final

from pegainfer_core.text.parsing.delta import AnswerDelta, ToolCallDelta, new_call_id
from pegainfer_core.text.parsing.line_breaks import split_line_breaks
from pegainfer_core.text.parsing.protocol import Tools
from pegainfer_core.text.parsing.tag_lexer import Lexeme, TagLexer
from pegainfer_core.text.parsing.tool_format import ToolFormat, WrittenCall

__all__ = ["ToolBlockParser"]


#: Markers inside the values of one call; each costs a look at the whole block.
_MAX_PASSED: Final = 64


class _Place(Enum):
    CONTENT = auto()
    HEAD = auto()
    """Behind a marker that announces calls."""
    BLOCK = auto()
    BEHIND = auto()
    """Behind a call: line breaks and closing markers are dropped."""


class ToolBlockParser:
    """Implements `ToolParser`."""

    def __init__(self, form: ToolFormat, tools: Tools) -> None:
        """Prepare for one answer to a request with these tools."""
        self.tags = tuple(form.tags)
        self._form = form
        self._tools = tools
        self._lexer = TagLexer({*form.blocks, *form.blocks.values(), *form.heads, *form.tails})
        self._place = _Place.CONTENT
        # What belongs to a call if one follows, and is content if none does.
        self._held = ""
        self._opening = ""
        self._block: list[str] = []
        self._passed_end = 0
        self._num_passed = 0
        # At the end all blocks are known; looking for the best way to read them would take long.
        self._ended = False
        self._content: list[str] = []
        self._calls: list[ToolCallDelta] = []
        self._num_calls = 0

    def feed(self, text: str) -> AnswerDelta:
        """Take the next piece of text."""
        if self._is_only_content(text):
            return AnswerDelta(content=text)
        for lexeme in self._lexer.feed(text):
            self._take(lexeme)
        return self._delta()

    def flush(self) -> AnswerDelta:
        """End the text."""
        self._take_rest()
        self._ended = True
        while self._place is _Place.BLOCK:
            self._end_text_in_block()
        self._content.append(self._held)
        return self._delta()

    def _is_only_content(self, text: str) -> bool:
        """Most pieces are; the rest of the work can be left."""
        if self._place is not _Place.CONTENT or self._held or text.endswith("\n"):
            return False
        return self._lexer.is_plain(text)

    def _take_rest(self) -> None:
        rest = self._lexer.flush()
        if rest:
            self._take(Lexeme(rest, False))

    def _delta(self) -> AnswerDelta:
        delta = AnswerDelta(content="".join(self._content), tool_calls=tuple(self._calls))
        self._content.clear()
        self._calls.clear()
        return delta

    def _take(self, lexeme: Lexeme) -> None:
        if self._place is _Place.BLOCK:
            self._take_in_block(lexeme)
        elif lexeme.is_tag and lexeme.text in self._form.blocks:
            self._open_block(lexeme.text)
        elif lexeme.is_tag and lexeme.text in self._form.heads:
            self._held += lexeme.text
            self._place = _Place.HEAD
        elif self._place is _Place.BEHIND and lexeme.is_tag and lexeme.text in self._form.tails:
            pass
        elif self._place is _Place.HEAD and not lexeme.text.strip():
            self._held += lexeme.text
        else:
            self._take_content(lexeme.text)

    def _take_content(self, text: str) -> None:
        if self._place is _Place.BEHIND:
            text = text.lstrip("\n")
            if not text:
                return
        self._place = _Place.CONTENT
        shown, self._held = split_line_breaks(self._held + text)
        self._content.append(shown)

    def _open_block(self, opening: str) -> None:
        self._place = _Place.BLOCK
        self._opening = opening
        self._block = [opening]
        self._passed_end = self._num_passed = 0

    def _take_in_block(self, lexeme: Lexeme) -> None:
        closes = lexeme.is_tag and lexeme.text == self._form.blocks[self._opening]
        again = lexeme.is_tag and lexeme.text == self._opening
        if not closes and not again:
            self._block.append(lexeme.text)
            return
        block = "".join(self._block)
        if self._may_pass(block):
            self._num_passed += 1
            self._block = [block, lexeme.text]
            if closes and not self._passed_end:
                self._passed_end = len(block) + len(lexeme.text)
            return
        call = self._form.read(block + lexeme.text, self._tools) if closes else None
        if call is not None:
            self._add(call)
            return
        self._give_up(block + (lexeme.text if closes else ""))
        if again:
            self._open_block(lexeme.text)

    def _may_pass(self, block: str) -> bool:
        """Whether a marker behind the block is text."""
        if self._ended or self._num_passed >= _MAX_PASSED:
            return False
        return self._form.is_open(block)

    def _add(self, call: WrittenCall) -> None:
        self._calls.append(
            ToolCallDelta(
                index=self._num_calls,
                id=call.id or new_call_id(),
                name=call.name,
                arguments=call.arguments,
            )
        )
        self._num_calls += 1
        self._place, self._held = _Place.BEHIND, ""

    def _give_up(self, block: str) -> None:
        """The block is content."""
        self._content.append(self._held + block)
        self._place, self._held = _Place.CONTENT, ""

    def _end_text_in_block(self) -> None:
        """A last marker may be missing; or one was passed over that should not have been."""
        block = "".join(self._block)
        call = self._form.read(block, self._tools)
        if call is not None:
            self._add(call)
            return
        end = self._passed_end or len(block)
        self._give_up(block[:end])
        for lexeme in self._lexer.feed(block[end:]):
            self._take(lexeme)
        self._take_rest()
