"""Parts of an answer do not depend on how its text was cut."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from pegainfer_server.answer.parts import AnswerParts, Part, PartChange, PartKind, parts_of
from pegainfer_server.generation import Piece

from pegainfer_core.text import AnswerDelta
from pegainfer_core.text.parsing import ToolCallDelta

_RUNS = st.lists(st.tuples(st.sampled_from(PartKind), st.text(min_size=1, max_size=6)), max_size=6)


def told(part: Part) -> tuple[PartKind, int, str, str, str]:
    return part.kind, part.index, part.call_id, part.name, part.text


def pieces_of(runs: list[tuple[PartKind, str]], cuts: list[int]) -> list[Piece]:
    """The runs as deltas, cut after some of their characters."""
    pieces: list[Piece] = []
    num_calls = 0
    for number, (kind, text) in enumerate(runs):
        cut = cuts[number] % (len(text) + 1)
        for first, part in ((True, text[:cut]), (False, text[cut:])):
            if kind is PartKind.REASONING:
                answer = AnswerDelta(reasoning=part)
            elif kind is PartKind.TEXT:
                answer = AnswerDelta(content=part)
            else:
                name = f"f{num_calls}" if first else None
                call = ToolCallDelta(index=num_calls, id=name, name=name, arguments=part)
                answer = AnswerDelta(tool_calls=(call,))
            pieces.append(Piece(part, [1], answer=answer))
        num_calls += kind is PartKind.CALL
    return pieces


@settings(max_examples=40)
@given(_RUNS, st.lists(st.integers(0, 6), min_size=6, max_size=6))
def test_cuts_change_nothing(runs: list[tuple[PartKind, str]], cuts: list[int]) -> None:
    whole = [told(part) for part in parts_of(pieces_of(runs, [9] * 6))]
    assert [told(part) for part in parts_of(pieces_of(runs, cuts))] == whole
    assert "".join(part[-1] for part in whole) == "".join(text for _, text in runs)
    assert [part[1] for part in whole] == list(range(len(whole)))
    # Neighbours of one kind are one part, unless they are calls.
    for one, other in itertools.pairwise(whole):
        assert one[0] is not other[0] or one[0] is PartKind.CALL


@settings(max_examples=40)
@given(_RUNS, st.lists(st.integers(0, 6), min_size=6, max_size=6))
def test_parts_open_grow_and_close_in_order(
    runs: list[tuple[PartKind, str]], cuts: list[int]
) -> None:
    built = AnswerParts()
    seen: list[tuple[PartChange, int, str]] = []
    for piece in pieces_of(runs, cuts):
        seen += [(step.change, step.part.index, step.text) for step in built.take(piece)]
    seen += [(step.change, step.part.index, step.text) for step in built.end()]
    assert not list(built.end())
    for part in built.parts:
        mine = [(change, text) for change, index, text in seen if index == part.index]
        assert mine[0][0] is PartChange.OPENED and mine[-1][0] is PartChange.CLOSED
        assert {change for change, _ in mine[1:-1]} <= {PartChange.GREW}
        assert "".join(text for _, text in mine) == part.text
    assert [index for _, index, _ in seen] == sorted(index for _, index, _ in seen)


def test_answers_without_parsers_are_text() -> None:
    (part,) = parts_of([Piece("a", [1]), Piece("", [2]), Piece("b", [3])])
    assert told(part) == (PartKind.TEXT, 0, "", "", "ab")
