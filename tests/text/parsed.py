"""Running parsers over texts that are cut in any way."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol

import msgspec
from hypothesis import strategies as st

from pegainfer_core.text import AnswerDelta, join_deltas


class Parser(Protocol):
    def feed(self, text: str) -> AnswerDelta: ...

    def flush(self) -> AnswerDelta: ...


def parse(parser: Parser, pieces: Sequence[str]) -> AnswerDelta:
    """All that a parser makes of the pieces; ids made up by core are left out."""
    joined = join_deltas([*(parser.feed(piece) for piece in pieces), parser.flush()])
    calls = tuple(
        msgspec.structs.replace(call, id=None) if (call.id or "").startswith("call_") else call
        for call in joined.tool_calls
    )
    return msgspec.structs.replace(joined, tool_calls=calls)


def calls_of(delta: AnswerDelta) -> list[tuple[str | None, str]]:
    assert [call.index for call in delta.tool_calls] == list(range(len(delta.tool_calls)))
    return [(call.name, call.arguments) for call in delta.tool_calls]


@st.composite
def cut_texts(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> list[str]:
    """A text as the pieces of one way to cut it."""
    text = draw(texts)
    places = sorted(draw(st.sets(st.integers(0, len(text)), max_size=12)))
    edges = [0, *places, len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]
