from collections.abc import Callable, Sequence
from typing import TypedDict, Unpack

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pegainfer_core.testing.byte_tokenizer import CONTENT_ID, EOS_ID, THINK_ID, TURN_ID
from pegainfer_core.text import TextOutput, Tokenizer
from tests.text import foreign_tokenizers

_IDS = st.lists(
    st.sampled_from([*b"ab#k.", 0xC3, 0xA9, EOS_ID, TURN_ID, THINK_ID, CONTENT_ID, 300]),
    max_size=14,
)
_STOPS = st.lists(
    st.sampled_from(["#", "ab", "##", "é", "b##c", "<turn>", ".<turn>", "<think>", "\ufffd"]),
    max_size=3,
)


class Options(TypedDict, total=False):
    stop: Sequence[str]
    include_stop_str_in_output: bool
    skip_special_tokens: bool
    end_token_ids: Sequence[int]
    stop_token_ids: Sequence[int]
    min_tokens: int
    text_offsets: bool
    base_offset_chars: int


class Answer:
    """What a client sees in the end."""

    def __init__(
        self, tokenizer: Tokenizer, chunks: Sequence[Sequence[int]], **options: Unpack[Options]
    ) -> None:
        output = TextOutput(tokenizer, **options)
        deltas = [output.push(chunk) for chunk in chunks]
        deltas.append(output.finish())
        self.text = "".join(delta.text for delta in deltas)
        self.num_tokens = sum(delta.num_tokens for delta in deltas)
        self.stop_string = deltas[-1].stop_string
        self.offsets = [offset for delta in deltas for offset in delta.text_offsets or ()]
        assert self.num_tokens == output.num_tokens
        assert deltas[-1].stopped == (output.stop_string is not None)
        assert output.finish().text == ""


def _whole(tokenizer: Tokenizer, ids: Sequence[int], **options: Unpack[Options]) -> Answer:
    return Answer(tokenizer, [ids], **options)


def _one_by_one(tokenizer: Tokenizer, ids: Sequence[int], **options: Unpack[Options]) -> Answer:
    return Answer(tokenizer, [[token_id] for token_id in ids], **options)


@given(
    ids=_IDS,
    stop=_STOPS,
    include=st.booleans(),
    skip=st.booleans(),
    min_tokens=st.integers(0, 4),
    cut=st.integers(0, 14),
)
@example(ids=[0xC3, TURN_ID, 0xA9], stop=["<turn>"], include=False, skip=True, min_tokens=0, cut=1)
@settings(max_examples=150, deadline=None)
def test_streamed_equals_whole(
    bytes_tokenizer: Tokenizer,
    ids: list[int],
    stop: list[str],
    include: bool,
    skip: bool,
    min_tokens: int,
    cut: int,
) -> None:
    options = Options(
        stop=stop,
        include_stop_str_in_output=include,
        skip_special_tokens=skip,
        min_tokens=min_tokens,
        text_offsets=True,
    )
    whole = _whole(bytes_tokenizer, ids, **options)
    for other in (
        _one_by_one(bytes_tokenizer, ids, **options),
        Answer(bytes_tokenizer, [ids[:cut], [], ids[cut:]], **options),
    ):
        assert vars(other) == vars(whole)
    if whole.stop_string is None:
        assert whole.text == bytes_tokenizer.decode(ids, skip)
        assert whole.num_tokens == len(ids)
    elif skip and not include:
        used = bytes_tokenizer.decode(ids[: whole.num_tokens], skip)
        assert used.startswith(whole.text)
    assert len(whole.offsets) == whole.num_tokens


@pytest.mark.parametrize("answer", [_whole, _one_by_one])
class TestCases:
    """Cases S01 to S07 on the script's own tokens."""

    def test_s01_characters_over_tokens(self, bytes_tokenizer: Tokenizer, answer) -> None:
        ids = [*"é🧭한".encode(), EOS_ID]
        result = answer(bytes_tokenizer, ids, end_token_ids=[EOS_ID])
        assert (result.text, result.num_tokens) == ("é🧭한", 10)

    def test_s05_stop_inside_a_token(self, bytes_tokenizer: Tokenizer, answer) -> None:
        ids = [ord("A"), CONTENT_ID, ord("Z"), EOS_ID]
        for stop, include, text in (
            (["##"], False, "Aab"),
            (["##"], True, "Aab##"),
            (["cd", "##"], False, "Aab"),
        ):
            result = answer(bytes_tokenizer, ids, stop=stop, include_stop_str_in_output=include)
            assert (result.text, result.stop_string, result.num_tokens) == (text, "##", 2)

    def test_s06_special_tokens_as_stop(self, bytes_tokenizer: Tokenizer, answer) -> None:
        ids = [*b"ok.", TURN_ID]
        by_id = Options(stop_token_ids=[TURN_ID])
        assert answer(bytes_tokenizer, ids, **by_id).text == "ok."
        by_text = answer(bytes_tokenizer, [*ids, ord("x")], stop=["<turn>"])
        assert (by_text.text, by_text.stop_string, by_text.num_tokens) == ("ok.", "<turn>", 4)
        shown = Options(stop_token_ids=[TURN_ID], skip_special_tokens=False)
        assert answer(bytes_tokenizer, ids, **shown).text == "ok."
        included = answer(bytes_tokenizer, ids, **shown, include_stop_str_in_output=True)
        assert included.text == "ok.<turn>"

    def test_s07_spaces(self, bytes_tokenizer: Tokenizer, answer) -> None:
        ids = bytes_tokenizer.encode("<think>ok</think>1", add_special_tokens=False)
        assert len(ids) == 5
        assert answer(bytes_tokenizer, ids).text == "<think>ok</think>1"
        assert answer(bytes_tokenizer, [0x20, ord("a")]).text == " a"

    @pytest.mark.parametrize("include", [False, True])
    def test_end_tokens_have_no_text(
        self, bytes_tokenizer: Tokenizer, answer, include: bool
    ) -> None:
        options = Options(
            end_token_ids=[EOS_ID, TURN_ID],
            include_stop_str_in_output=include,
            skip_special_tokens=False,
        )
        result = answer(bytes_tokenizer, [ord("A"), TURN_ID], **options)
        assert (result.text, result.num_tokens) == ("A", 2)
        named = answer(bytes_tokenizer, [ord("A"), TURN_ID], **options, stop_token_ids=[TURN_ID])
        assert (named.text, named.num_tokens) == ("A<turn>" if include else "A", 2)

    def test_stop_strings_count_after_min_tokens(self, bytes_tokenizer: Tokenizer, answer) -> None:
        ids = list(b"a#b#c")
        result = answer(bytes_tokenizer, ids, stop=["#"], min_tokens=2)
        assert (result.text, result.num_tokens) == ("a#b", 4)
        hidden = [TURN_ID, ord("a"), TURN_ID]
        result = answer(bytes_tokenizer, hidden, stop=["<turn>"], min_tokens=1)
        assert (result.text, result.num_tokens) == ("a", 3)

    def test_offsets(self, bytes_tokenizer: Tokenizer, answer) -> None:
        ids = [ord("a"), 0xC3, 0xA9, TURN_ID, CONTENT_ID, ord("b")]
        result = answer(bytes_tokenizer, ids, text_offsets=True, base_offset_chars=10)
        assert result.offsets == [10, 11, 11, 12, 12, 18]
        assert result.text == "aéab##cdb"


def test_held_back_text_appears_at_the_end(bytes_tokenizer: Tokenizer) -> None:
    output = TextOutput(bytes_tokenizer, stop=["##"])
    assert output.push([ord("a"), ord("#")]).text == "a"
    assert output.finish().text == "#"
    output = TextOutput(bytes_tokenizer, stop=["##"])
    assert output.push([ord("#"), 0xF0, 0x9F]).text == ""
    assert output.finish().text == "#\ufffd"


def test_delta_says_which_token_completed_the_stop_string(bytes_tokenizer: Tokenizer) -> None:
    output = TextOutput(bytes_tokenizer, stop=["b."], text_offsets=True)
    delta = output.push(list(b"ab.xyz"))
    assert (delta.text, delta.num_tokens, delta.stop_string) == ("a", 3, "b.")
    assert delta.stopped
    assert delta.text_offsets == (0, 1, 2)
    later = output.push(list(b"more"))
    assert (later.text, later.num_tokens, later.stop_string) == ("", 0, "b.")
    assert later.text_offsets == ()


def test_nothing_asked_for_nothing_computed(bytes_tokenizer: Tokenizer) -> None:
    delta = TextOutput(bytes_tokenizer).push([ord("a")])
    assert (delta.text, delta.num_tokens, delta.stop_string, delta.text_offsets) == (
        "a",
        1,
        None,
        None,
    )
    assert not delta.stopped


@pytest.mark.parametrize("make", [None, foreign_tokenizers.byte_fallback])
def test_chosen_special_tokens_are_shown_all_the_same(
    bytes_tokenizer: Tokenizer, make: Callable[[], tokenizers.Tokenizer] | None
) -> None:
    tokenizer = bytes_tokenizer if make is None else Tokenizer(make())
    special = sorted(tokenizer.special_ids)
    letter = tokenizer.encode("a", False)[-1]
    ids = [letter, *special, letter]
    texts = [tokenizer.token_text(token_id) for token_id in special]
    for shown in ([], special[:1], special):
        output = TextOutput(tokenizer, shown_ids=frozenset(shown))
        text = "".join(output.push([token_id]).text for token_id in ids) + output.finish().text
        assert text.split() == f"a{''.join(texts[: len(shown)])}a".split()
    # Shown, it is text like any other for stop strings.
    output = TextOutput(tokenizer, shown_ids=frozenset(special), stop=[texts[0][1:] + "a"])
    found = output.push([letter, special[0], letter])
    assert (found.text.strip(), found.stopped) == ("a" + texts[0][:1], True)
