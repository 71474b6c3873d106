"""What parsers make of an answer's text: reasoning, content and tool calls, in pieces.

Knows no format and no protocol.
"""

from collections.abc import Iterable
from uuid import uuid4

import msgspec

__all__ = ["AnswerDelta", "ToolCallDelta", "join_deltas", "new_call_id"]

_ID_CHARS = 24


class ToolCallDelta(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of one tool call.

    Attributes:
        index: Place of the call in the answer, from 0.
        id: Set in the call's first piece, None in others.
        name: Of the function; set in the call's first piece, None in others.
        arguments: Next characters of the arguments, which joined are the JSON text of an object.
    """

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class AnswerDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What a piece of text adds to an answer; empty parts add nothing."""

    reasoning: str = ""
    content: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.reasoning or self.content or self.tool_calls)


def join_deltas(deltas: Iterable[AnswerDelta]) -> AnswerDelta:
    """All deltas as one: texts joined, and one piece for each call."""
    found = list(deltas)
    calls: dict[int, ToolCallDelta] = {}
    for piece in (piece for delta in found for piece in delta.tool_calls):
        first = calls.get(piece.index)
        calls[piece.index] = (
            piece
            if first is None
            else msgspec.structs.replace(first, arguments=first.arguments + piece.arguments)
        )
    return AnswerDelta(
        reasoning="".join(delta.reasoning for delta in found),
        content="".join(delta.content for delta in found),
        tool_calls=tuple(calls.values()),
    )


def new_call_id() -> str:
    """An id for a call whose format has none."""
    return f"call_{uuid4().hex[:_ID_CHARS]}"
