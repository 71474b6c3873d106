"""An answer as a sequence of parts: reasoning, text and calls, one after the other.

Other APIs call them items or blocks. Knows none of them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pegainfer_core.text import AnswerDelta, ToolCallDelta
    from pegainfer_server.generation import Piece


class PartKind(enum.Enum):
    """What a part is."""

    REASONING = enum.auto()
    TEXT = enum.auto()
    CALL = enum.auto()


@dataclass
class Part:
    """A part as far as it is known.

    Attributes:
        index: Place in the answer, from 0.
        call_id: Of a call.
        name: Of the called function.
        texts: Pieces of the text, or of a call's arguments.
    """

    kind: PartKind
    index: int
    call_id: str = ""
    name: str = ""
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text so far, or the arguments so far."""
        return "".join(self.texts)


class PartChange(enum.Enum):
    """What happened to a part."""

    OPENED = enum.auto()
    GREW = enum.auto()
    CLOSED = enum.auto()


class PartStep(NamedTuple):
    """One thing that happened; `text` is what a part grew by."""

    change: PartChange
    part: Part
    text: str = ""


class AnswerParts:
    """Builds the parts of one answer.

    Attributes:
        parts: Those that were opened; all but the last are closed.
    """

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self._is_open = False
        self._call_index = -1

    def take(self, piece: Piece) -> Iterator[PartStep]:
        """What a piece of the answer changes."""
        answer = piece.answer
        if answer is None:
            return self._grow(PartKind.TEXT, piece.text)
        if not (answer.reasoning or answer.tool_calls):
            return self._grow(PartKind.TEXT, answer.content)
        return self._take_delta(answer)

    def end(self) -> Iterator[PartStep]:
        """Close the part that is open."""
        if self._is_open:
            self._is_open = False
            yield PartStep(PartChange.CLOSED, self.parts[-1])

    def _take_delta(self, answer: AnswerDelta) -> Iterator[PartStep]:
        yield from self._grow(PartKind.REASONING, answer.reasoning)
        yield from self._grow(PartKind.TEXT, answer.content)
        for call in answer.tool_calls:
            yield from self._take_call(call)

    def _take_call(self, call: ToolCallDelta) -> Iterator[PartStep]:
        if call.index != self._call_index:
            self._call_index = call.index
            part = Part(PartKind.CALL, 0, call.id or "", call.name or "")
            yield from self._open(part)
        yield from self._grow(PartKind.CALL, call.arguments)

    def _grow(self, kind: PartKind, text: str) -> Iterator[PartStep]:
        if not text:
            return
        if not self._is_open or self.parts[-1].kind is not kind:
            yield from self._open(Part(kind, 0))
        part = self.parts[-1]
        part.texts.append(text)
        yield PartStep(PartChange.GREW, part, text)

    def _open(self, part: Part) -> Iterator[PartStep]:
        yield from self.end()
        part.index = len(self.parts)
        self.parts.append(part)
        self._is_open = True
        yield PartStep(PartChange.OPENED, part)


def parts_of(pieces: Sequence[Piece]) -> list[Part]:
    """The parts of a whole answer."""
    built = AnswerParts()
    for piece in pieces:
        for _ in built.take(piece):
            pass
    return built.parts
