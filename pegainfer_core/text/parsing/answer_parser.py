"""The parsers of one answer in a row: reasoning first, tool calls in what is left."""

from collections.abc import Sequence

import msgspec

from pegainfer_core.text.parsing.delta import AnswerDelta, join_deltas
from pegainfer_core.text.parsing.protocol import ReasoningParser, ToolParser

__all__ = ["AnswerParser"]


class AnswerParser:
    """Takes an answer's text apart; one object an answer.

    Calls inside reasoning are part of the reasoning.
    """

    __slots__ = ("_reasoning", "_tools")

    def __init__(
        self, reasoning: ReasoningParser | None = None, tools: ToolParser | None = None
    ) -> None:
        """Put parsers together; with none of them all text is content."""
        self._reasoning = reasoning
        self._tools = tools

    @property
    def tags(self) -> Sequence[str]:
        """The markers of all formats."""
        parsers = (self._reasoning, self._tools)
        return [tag for parser in parsers if parser is not None for tag in parser.tags]

    @property
    def in_reasoning(self) -> bool:
        """Whether the text so far ends inside reasoning."""
        return self._reasoning is not None and self._reasoning.in_reasoning

    def feed(self, text: str) -> AnswerDelta:
        """Take the next piece of text; return what it settles."""
        delta = AnswerDelta(content=text) if self._reasoning is None else self._reasoning.feed(text)
        return self._without_calls(delta)

    def flush(self) -> AnswerDelta:
        """End the text: return what was held back. Called once."""
        last = AnswerDelta() if self._reasoning is None else self._reasoning.flush()
        ends = [self._without_calls(last)]
        if self._tools is not None:
            ends.append(self._tools.flush())
        return join_deltas(ends)

    def _without_calls(self, delta: AnswerDelta) -> AnswerDelta:
        if self._tools is None or not delta.content:
            return delta
        parsed = self._tools.feed(delta.content)
        if not delta.reasoning:
            return parsed
        return msgspec.structs.replace(parsed, reasoning=delta.reasoning)
