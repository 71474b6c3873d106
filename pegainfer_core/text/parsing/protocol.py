"""What core asks of a parser. Parsers see text only, cut anywhere, and never an id of a token."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from pegainfer_core.text.parsing.delta import AnswerDelta

__all__ = [
    "MarkedReasoning",
    "ReasoningParser",
    "ReasoningParserFactory",
    "ToolParser",
    "ToolParserFactory",
    "Tools",
]

Tools = Sequence[Mapping[str, object]]
"""The request's tools as the client sent them: `{"type": "function", "function": {...}}`."""


class ToolParser(Protocol):
    """Finds tool calls in the text of one answer.

    Deltas joined must not depend on how the text was cut. Text that turns out to be no call comes
    back as content; all other text is content too.
    """

    @property
    def tags(self) -> Sequence[str]:
        """The format's markers.

        Those that are special tokens of the model are left in the text that the parser gets,
        although special tokens are hidden.
        """
        ...

    def feed(self, text: str) -> AnswerDelta:
        """Take the next piece of text; return content and calls that are settled by it."""
        ...

    def flush(self) -> AnswerDelta:
        """End the text: return what was held back. Called once."""
        ...


class ReasoningParser(Protocol):
    """Divides the text of one answer into reasoning and content, whatever the cuts."""

    @property
    def tags(self) -> Sequence[str]:
        """The markers, as in `ToolParser`."""
        ...

    @property
    def in_reasoning(self) -> bool:
        """Whether the text so far ends inside reasoning."""
        ...

    def feed(self, text: str) -> AnswerDelta:
        """Take the next piece of text; return reasoning and content that are settled by it."""
        ...

    def flush(self) -> AnswerDelta:
        """End the text: return what was held back. Called once."""
        ...


@runtime_checkable
class MarkedReasoning(Protocol):
    """What a reasoning parser has beside it if its markers tell where reasoning begins and ends.

    Attributes:
        start_tag: Opens reasoning at the beginning of an answer.
        end_tag: Ends it.
    """

    start_tag: str
    end_tag: str


class ToolParserFactory(Protocol):
    """Makes the parser of one answer."""

    def __call__(self, tools: Tools) -> ToolParser:
        """A parser for an answer to a request with these tools."""
        ...


class ReasoningParserFactory(Protocol):
    """Makes the parser of one answer."""

    def __call__(self, prompt: str, continued: str) -> ReasoningParser:
        """A parser for the answer to a prompt, whose end decides whether reasoning is open.

        Args:
            prompt: As rendered.
            continued: Text of the final message when the prompt ends inside it, else "".
        """
        ...
