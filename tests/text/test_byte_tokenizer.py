import json
from pathlib import Path

from tokenizers import Tokenizer

from pegainfer_core.testing.byte_tokenizer import (
    BOS_ID,
    CONTENT_ID,
    END_THINK_ID,
    EOS_ID,
    THINK_ID,
    TURN_ID,
    byte_tokenizer,
)
from pegainfer_core.text.byte_alphabet import BYTE_TO_CHAR, CHAR_TO_BYTE, token_text_to_bytes


def test_ids_are_bytes(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(byte_tokenizer(tmp_path) / "tokenizer.json"))
    text = " né\n🧭한\x00"
    assert tokenizer.encode(text).ids == list(text.encode())
    assert tokenizer.decode(list(text.encode())) == text
    assert tokenizer.get_vocab_size() == 261


def test_added_tokens(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(byte_tokenizer(tmp_path) / "tokenizer.json"))
    ids = tokenizer.encode("<eos><turn><think></think>ab##cd").ids
    assert ids == [EOS_ID, TURN_ID, THINK_ID, END_THINK_ID, CONTENT_ID]
    assert ids == [256, 257, 258, 259, 260]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<think></think>ab##cd"
    assert tokenizer.id_to_token(261) is None


def test_bos_only_when_asked(tmp_path: Path) -> None:
    plain = Tokenizer.from_file(str(byte_tokenizer(tmp_path / "a") / "tokenizer.json"))
    with_bos = Tokenizer.from_file(
        str(byte_tokenizer(tmp_path / "b", prepend_bos=True) / "tokenizer.json")
    )
    assert plain.encode("Hi").ids == [72, 105]
    assert with_bos.encode("Hi").ids == [BOS_ID, 72, 105]
    assert with_bos.encode("Hi", add_special_tokens=False).ids == [72, 105]


def test_template_is_written_as_given(tmp_path: Path) -> None:
    byte_tokenizer(tmp_path, chat_template="{{ messages[0].content }}")
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["chat_template"] == "{{ messages[0].content }}"
    assert config["eos_token"] == "<eos>"


def test_alphabet_is_a_bijection_and_foreign_text_is_utf8() -> None:
    assert len(CHAR_TO_BYTE) == 256
    spelled = "".join(BYTE_TO_CHAR[byte] for byte in range(256))
    assert token_text_to_bytes(spelled) == bytes(range(256))
    for foreign in ("<｜User｜>", "a b", "\xad", "\x7f", "\xa0x", "한"):
        assert token_text_to_bytes(foreign) == foreign.encode()
