from collections.abc import Callable

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pegainfer_core.text import IncrementalDetokenizer, Tokenizer
from tests.text import foreign_tokenizers

# Bytes, special and added tokens, and ids without an entry.
_BYTE_IDS = st.lists(st.integers(0, 263), max_size=24)
# Bytes that start, continue or break characters, much denser than random ones.
_BREAKING_BYTES = bytes.fromhex("20 41 80 9f a7 ad bf c2 c3 e0 e2 ed f0 f4 ff")
_DENSE_IDS = st.lists(st.sampled_from([*_BREAKING_BYTES, 256, 258, 260, 300]), max_size=16)


def _streamed(tokenizer: Tokenizer, ids: list[int], skip: bool) -> str:
    detokenizer = IncrementalDetokenizer.for_tokenizer(tokenizer, skip_special_tokens=skip)
    text = "".join(detokenizer.feed(token_id) for token_id in ids)
    rest = detokenizer.pending()
    assert detokenizer.flush() == rest
    assert detokenizer.flush() == ""
    return text + rest


@given(ids=st.one_of(_BYTE_IDS, _DENSE_IDS), skip=st.booleans())
@example(ids=[0xE0, 0x80, 0xED, 0xA0, 0x80, 0xF4, 0x90, 0xC0, 0xAF], skip=True)
@example(ids=[0xC3, 256, 0xA9], skip=True)
@example(ids=[0xC3, 256, 0xA9], skip=False)
@settings(max_examples=200, deadline=None)
def test_joined_pieces_are_the_decoded_text(
    bytes_tokenizer: Tokenizer, ids: list[int], skip: bool
) -> None:
    assert _streamed(bytes_tokenizer, ids, skip) == bytes_tokenizer.decode(ids, skip)


@given(text=st.text(max_size=20))
@settings(max_examples=200, deadline=None)
def test_valid_text_never_shows_a_replacement(bytes_tokenizer: Tokenizer, text: str) -> None:
    detokenizer = IncrementalDetokenizer.for_tokenizer(bytes_tokenizer)
    shown = ""
    for byte in text.encode():
        shown += detokenizer.feed(byte)
        assert text.startswith(shown)
    assert shown == text
    assert detokenizer.pending() == ""


def test_characters_over_several_tokens(bytes_tokenizer: Tokenizer) -> None:
    ids = [0xC3, 0xA9, 0xF0, 0x9F, 0xA7, 0xAD, 0xED, 0x95, 0x9C]
    detokenizers = [IncrementalDetokenizer.for_tokenizer(bytes_tokenizer) for _ in range(8)]
    streams = [[d.feed(token_id) for d in detokenizers] for token_id in ids]
    assert [pieces[0] for pieces in streams] == ["", "é", "", "", "", "🧭", "", "", "한"]
    assert all(len(set(pieces)) == 1 for pieces in streams)


def test_answer_to_a_prompt_that_ends_inside_a_character(bytes_tokenizer: Tokenizer) -> None:
    ids = [0x9F, 0xA7, 0xAD, 0x21]
    assert _streamed(bytes_tokenizer, ids, True) == "\ufffd\ufffd\ufffd!"
    assert bytes_tokenizer.decode(ids, True) == "\ufffd\ufffd\ufffd!"


def test_no_spaces_are_invented_or_lost(bytes_tokenizer: Tokenizer) -> None:
    ids = [258, ord("o"), ord("k"), 259, ord("1")]
    assert _streamed(bytes_tokenizer, ids, True) == "<think>ok</think>1"
    assert _streamed(bytes_tokenizer, [0x20, ord("a")], True) == " a"


@pytest.mark.parametrize("build", foreign_tokenizers.ALL)
def test_other_decoders(build: Callable[[], tokenizers.Tokenizer]) -> None:
    tokenizer = Tokenizer(build())
    assert not tokenizer.byte_level
    highest = tokenizer.vocab_size + 2
    euro = [tokenizer.token_to_id(f"<0x{byte:02X}>") or 0 for byte in (0xE2, 0x82, 0xAC)]

    @given(
        ids=st.lists(st.one_of(st.integers(0, highest), st.integers(257, highest)), max_size=16),
        skip=st.booleans(),
    )
    @example(ids=euro, skip=True)
    @example(ids=[*euro, 256, 265], skip=True)
    @settings(max_examples=120, deadline=None)
    def check(ids: list[int], skip: bool) -> None:
        assert _streamed(tokenizer, ids, skip) == tokenizer.decode(ids, skip)

    check()


def test_text_of_other_decoders_streams_word_by_word() -> None:
    tokenizer = Tokenizer(foreign_tokenizers.byte_fallback())
    detokenizer = IncrementalDetokenizer.for_tokenizer(tokenizer)
    pieces = ["▁a", "▁b", "<0xF0>", "<0x9F>", "<0xA7>", "<0xAD>", "c", "</s>", "▁é"]
    ids = [tokenizer.token_to_id(piece) for piece in pieces]
    assert None not in ids
    fed = [detokenizer.feed(token_id) for token_id in ids if token_id is not None]
    assert fed == ["a", " b", "", "", "", "", "🧭c", "", " é"]
    assert detokenizer.flush() == ""


@pytest.mark.real_inputs
def test_qwen3_pieces_are_the_decoded_text(qwen3: Tokenizer) -> None:
    pieces = qwen3.pieces(False)
    partial = [i for i in range(qwen3.vocab_size) if isinstance(pieces[i], bytes)]
    assert len(partial) == 1448

    @given(
        ids=st.lists(
            st.one_of(
                st.integers(0, 151_935), st.sampled_from(partial), st.integers(151_640, 151_672)
            ),
            max_size=24,
        ),
        skip=st.booleans(),
    )
    @settings(max_examples=350, deadline=None)
    def check(ids: list[int], skip: bool) -> None:
        assert _streamed(qwen3, ids, skip) == qwen3.decode(ids, skip)

    check()


@pytest.mark.real_inputs
def test_qwen3_every_id_alone(qwen3: Tokenizer) -> None:
    for token_id in range(0, 151_936):
        assert _streamed(qwen3, [token_id], False) == qwen3.decode([token_id], False)
