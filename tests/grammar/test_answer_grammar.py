"""Answers that follow masks at random have the form that was asked for, whatever they choose."""

from __future__ import annotations

import json
import os
import re
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pegainfer_core.grammar.answer_grammar as answer_grammar
from pegainfer_core.contract import StructuredOutput
from pegainfer_core.grammar import AnswerGrammar, GrammarDesk, MaskTeam
from pegainfer_core.grammar.grammar_text import MAX_CHOICES
from tests.grammar.grammars import (
    END_THINK,
    EOS,
    THINK,
    VOCAB,
    begin,
    compiler,
    ids_of,
    request,
    text_of,
    walk,
)
from tests.grammar.schemas import SCHEMAS, Schema, fits

NUM_SCHEMAS = int(os.environ.get("PEGAINFER_NUM_SCHEMAS", "25"))
YES_NO = StructuredOutput(kind="choice", text='["yes", "no"]')
LETTERS = StructuredOutput(kind="regex", text="[a-c]{2,5}")


@given(schema=SCHEMAS, seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=NUM_SCHEMAS)
def test_json_is_what_its_schema_asks_for(desk: GrammarDesk, schema: Schema, seed: int) -> None:
    form = StructuredOutput(kind="json_schema", text=json.dumps(schema))
    ids = list(walk(begin(desk, form), seed))
    assert ids.pop() == EOS
    value = json.loads(text_of(ids))
    assert fits(value, schema), value


def test_any_object(desk: GrammarDesk) -> None:
    ended = 0
    for seed in range(8):
        ids = list(walk(begin(desk, StructuredOutput(kind="json_object")), seed, max_tokens=300))
        if ids[-1] == EOS:
            ended += 1
            assert isinstance(json.loads(text_of(ids)), dict)
    assert ended


def test_regular_expressions(desk: GrammarDesk) -> None:
    for seed in range(8):
        assert re.fullmatch("[a-c]{2,5}", text_of(list(walk(begin(desk, LETTERS), seed))))


def test_choices_and_grammars(desk: GrammarDesk) -> None:
    form = StructuredOutput(kind="choice", text=json.dumps(['a "b"\n', "ü", "\\d"]))
    seen = {text_of(list(walk(begin(desk, form), seed))) for seed in range(20)}
    assert seen == {'a "b"\n', "ü", "\\d"}
    lark = StructuredOutput(kind="grammar", text='start: "x" pair+\npair: "(" /[0-9]/ ")"')
    for seed in range(4):
        assert re.fullmatch(r"x(\([0-9]\))+", text_of(list(walk(begin(desk, lark), seed))))


def test_as_many_choices_as_are_allowed(desk: GrammarDesk) -> None:
    choices = [f"c{number}" for number in range(MAX_CHOICES)]
    form = StructuredOutput(kind="choice", text=json.dumps(choices))
    seen = {text_of(list(walk(begin(desk, form), seed))) for seed in range(20)}
    assert len(seen) > 5 and seen <= set(choices)


def test_a_rule_that_is_too_wide_for_the_parser_says_so(desk: GrammarDesk) -> None:
    rule = " | ".join(f'"c{number}"' for number in range(2_500))
    grammar = begin(desk, StructuredOutput(kind="grammar", text=f"start: {rule}"))
    grammar.advance(ord("c"))
    grammar.mask(1)
    assert "max is 2000" in grammar.error


def test_the_end_is_possible_where_the_form_is_complete_and_nowhere_else(desk: GrammarDesk) -> None:
    grammar = begin(desk, LETTERS)
    for count, expected in enumerate([False, False, True, True, True, True]):
        assert (EOS in ids_of(grammar.mask(count))) is expected
        if count == 5:
            assert ids_of(grammar.mask(count)) == [EOS]
        grammar.advance(ord("b"))


def test_without_an_end_token_the_form_ends_the_answer(desk: GrammarDesk) -> None:
    grammar = begin(desk, YES_NO, ignore_eos=True)
    assert text_of(list(walk(grammar, 0))) in ("yes", "no")
    assert grammar.finished and not grammar.error


def test_stop_tokens_of_the_client_are_ends(desk: GrammarDesk) -> None:
    grammar = begin(desk, LETTERS, ignore_eos=True, stop_token_ids=[7])
    grammar.advance(ord("a"))
    grammar.advance(ord("a"))
    assert {7, ord("c")} <= set(ids_of(grammar.mask(2)))
    assert EOS not in ids_of(grammar.mask(2))


def test_min_tokens_wait_for_the_form(desk: GrammarDesk) -> None:
    grammar = begin(desk, LETTERS, min_tokens=4)
    for count in range(4):
        assert EOS not in ids_of(grammar.mask(count))
        grammar.advance(ord("a"))
    assert EOS in ids_of(grammar.mask(4))


def test_a_complete_form_ends_before_min_tokens(desk: GrammarDesk) -> None:
    ids = list(walk(begin(desk, YES_NO, min_tokens=50), 1))
    assert ids[-1] == EOS and text_of(ids) in ("yes", "no")


def test_other_masks_apply_as_far_as_the_form_allows(desk: GrammarDesk) -> None:
    masks = {
        "allowed_token_ids": [ord("a"), ord("b"), EOS],
        "bad_token_sequences": [[ord("b")], [ord("a"), ord("a")]],
    }
    grammar = begin(desk, LETTERS, **masks)
    assert ids_of(grammar.mask(0)) == [ord("a")]
    grammar.advance(ord("a"))
    # Nothing that is left of the form is wanted, so the form decides.
    assert ids_of(grammar.mask(1)) == [ord("a"), ord("b"), ord("c")]
    grammar.advance(ord("c"))
    assert ids_of(grammar.mask(2)) == [ord("a"), EOS]


@pytest.mark.parametrize("begun", [True, False])
def test_reasoning_comes_first_and_is_free(desk: GrammarDesk, begun: bool) -> None:
    form = StructuredOutput(
        kind="regex",
        text="[0-9]{3}",
        reasoning_end_id=END_THINK,
        reasoning_start_id=None if begun else THINK,
    )
    grammar = begin(desk, form)
    count = 0
    if not begun:
        assert ids_of(grammar.mask(0)) == [*range(ord("0"), ord("9") + 1), THINK]
        grammar.advance(THINK)
        count = 1
    free = [i for i in range(VOCAB) if i != EOS and i != 261]
    for token_id in (ord("1"), 200, THINK):
        assert ids_of(grammar.mask(count)) == free
        grammar.advance(token_id)
        count += 1
    grammar.advance(END_THINK)
    for letter in "\n\n42":
        count += 1
        assert ord(letter) in ids_of(grammar.mask(count)) and not grammar.error
        assert EOS not in ids_of(grammar.mask(count))
        grammar.advance(ord(letter))
    grammar.advance(ord("7"))
    assert ids_of(grammar.mask(count + 2)) == [EOS]


def test_an_answer_may_begin_with_the_form_where_reasoning_is_possible(desk: GrammarDesk) -> None:
    form = StructuredOutput(
        kind="choice", text='["yes"]', reasoning_start_id=THINK, reasoning_end_id=END_THINK
    )
    grammar = begin(desk, form)
    grammar.advance(ord("y"))
    assert ids_of(grammar.mask(1)) == [ord("e")]


def test_a_mask_is_asked_for_at_its_own_place(desk: GrammarDesk) -> None:
    grammar = begin(desk, LETTERS)
    with pytest.raises(RuntimeError, match="at token 0 was asked about token 1"):
        grammar.mask(1)


def test_a_token_that_was_not_allowed_is_an_error(desk: GrammarDesk) -> None:
    grammar = begin(desk, LETTERS)
    grammar.advance(ord("z"))
    grammar.mask(1)
    assert "not allowed" in grammar.error
    grammar.advance(ord("a"))
    assert grammar.mask(2) is not None


class SlowMatcher:
    """Takes its time for masks, then has one."""

    def __init__(self, *, spins: bool = False) -> None:
        self.gate = threading.Event()
        self._spins = spins

    def consume_token(self, token_id: int) -> bool:
        if self._spins:
            began_s = time.thread_time()
            while time.thread_time() - began_s < 0.4:
                pass
        else:
            self.gate.wait(10)
        return True

    def is_stopped(self) -> bool:
        return False

    def is_accepting(self) -> bool:
        return False

    def is_error(self) -> bool:
        return False

    def unsafe_compute_mask_ptr(self, address: int, num_bytes: int) -> None:
        pass


@pytest.fixture
def slow(desk: GrammarDesk) -> AnswerGrammar:
    grammar = begin(desk, LETTERS)
    grammar._matcher = SlowMatcher()  # type: ignore[assignment]
    grammar._team = MaskTeam(1)
    return grammar


def test_a_mask_that_takes_too_long_is_not_waited_for(
    slow: AnswerGrammar, monkeypatch: pytest.MonkeyPatch, desk: GrammarDesk
) -> None:
    monkeypatch.setattr(answer_grammar, "MAX_MASK_S", 0.05)
    other = begin(desk, LETTERS)
    other._team = slow._team
    slow.advance(ord("a"))
    other.advance(ord("a"))
    # Whoever waits behind the slow one gets a thread of its own.
    assert ord("b") in ids_of(other.mask(1)) and not other.error
    slow.mask(1)
    assert "too complex" in slow.error
    slow._matcher.gate.set()
    slow._team.close()


def test_masks_that_are_slow_on_the_whole_end_the_answer(slow: AnswerGrammar) -> None:
    slow._matcher = SlowMatcher(spins=True)  # type: ignore[assignment]
    slow.advance(ord("a"))
    slow.mask(1)
    assert "too complex" in slow.error
    slow._team.close()


def test_copies_share_nothing(desk: GrammarDesk) -> None:
    first, second = begin(desk, YES_NO), begin(desk, YES_NO)
    first.advance(ord("y"))
    assert ids_of(first.mask(1)) == [ord("e")]
    assert ids_of(second.mask(0)) == [ord("n"), ord("y")]


def test_requests_without_a_form_have_no_grammar(tokenizer_folder: object) -> None:
    made = compiler(tokenizer_folder)
    made.prepare()
    read = made.compile(YES_NO)
    wish = request(YES_NO)
    plain = wish.__class__(request_id=1, prompt_token_ids=[1])
    with pytest.raises(ValueError, match="no form"):
        AnswerGrammar(read, plain, VOCAB, MaskTeam())
