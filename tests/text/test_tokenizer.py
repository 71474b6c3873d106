import json
import threading
import time
from pathlib import Path

import pytest
import tokenizers
from tokenizers import AddedToken

from pegainfer_core.testing.byte_tokenizer import BOS_ID, EOS_ID, TURN_ID, byte_tokenizer
from pegainfer_core.text import SpecialTokens, Tokenizer, TokenizerError
from tests.real_inputs import released_tokenizer
from tests.text import foreign_tokenizers


def _edit(folder: Path, name: str, **changes: object) -> None:
    path = folder / name
    values = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**values, **changes}))


def test_round_trip(bytes_tokenizer: Tokenizer) -> None:
    ids = bytes_tokenizer.encode("né<eos>", add_special_tokens=True)
    assert ids == [*"né".encode(), EOS_ID]
    assert bytes_tokenizer.decode(ids, skip_special_tokens=True) == "né"
    assert bytes_tokenizer.decode(ids, skip_special_tokens=False) == "né<eos>"
    assert bytes_tokenizer.encode("", add_special_tokens=True) == []
    assert bytes_tokenizer.encode_batch(["a", "", "bc"], False) == [[97], [], [98, 99]]


def test_a_long_text_has_the_same_ids_and_leaves_others_the_gil(
    bytes_tokenizer: Tokenizer,
) -> None:
    text = "né <eos>\n" * 100_000
    unit = bytes_tokenizer.encode("né <eos>\n", add_special_tokens=False)
    ids: list[int] = []
    worker = threading.Thread(
        target=lambda: ids.extend(bytes_tokenizer.encode(text, add_special_tokens=True))
    )
    worker.start()
    num_turns = 0
    while worker.is_alive():
        time.sleep(0.001)
        num_turns += 1
    assert ids == unit * 100_000
    # Hundreds are usual; beside a thread that keeps the GIL there are one or two.
    assert num_turns > 8


def test_facts(bytes_tokenizer: Tokenizer) -> None:
    assert bytes_tokenizer.eos_ids == (EOS_ID,)
    assert bytes_tokenizer.bos_id is None
    assert bytes_tokenizer.pad_id is None
    assert bytes_tokenizer.special_ids == {EOS_ID, TURN_ID}
    assert bytes_tokenizer.vocab_size == 261
    assert bytes_tokenizer.byte_level


def test_single_tokens(bytes_tokenizer: Tokenizer) -> None:
    assert bytes_tokenizer.token_to_id("<turn>") == TURN_ID
    assert bytes_tokenizer.token_to_id("<none>") is None
    assert bytes_tokenizer.id_to_piece(0x20) == "Ġ"
    assert bytes_tokenizer.id_to_piece(300) is None
    assert bytes_tokenizer.token_bytes(0xE2) == b"\xe2"
    assert bytes_tokenizer.token_bytes(EOS_ID) == b"<eos>"
    assert bytes_tokenizer.token_bytes(300) is None
    assert bytes_tokenizer.token_text(0x20) == " "
    assert bytes_tokenizer.token_text(0xE2) == r"bytes:\xe2"
    assert bytes_tokenizer.token_text(EOS_ID) == "<eos>"
    assert bytes_tokenizer.token_text(300) == "token_id:300"


def test_token_texts_never_collide(bytes_tokenizer: Tokenizer) -> None:
    assert len({bytes_tokenizer.token_text(token_id) for token_id in range(270)}) == 270


def test_added_tokens_outside_the_byte_alphabet(byte_folder: Path) -> None:
    backend = tokenizers.Tokenizer.from_file(str(byte_folder / "tokenizer.json"))
    backend.add_tokens([AddedToken(text, normalized=False) for text in ("<｜User｜>", "a b", "éz")])
    tokenizer = Tokenizer(backend)
    assert [tokenizer.token_bytes(i) for i in (261, 262)] == ["<｜User｜>".encode(), b"a b"]
    # Spelled in the byte alphabet by accident; the decoder takes it so, and we agree with it.
    assert tokenizer.token_bytes(263) == b"\xe9z"
    assert tokenizer.decode([263], False) == "\ufffdz"


def test_token_bytes_of_other_decoders() -> None:
    tokenizer = Tokenizer(foreign_tokenizers.byte_fallback())
    expected = {"<0xE2>": b"\xe2", "▁a": b" a", "한": "한".encode(), "</s>": b"</s>", "▁": b" "}
    for piece, data in expected.items():
        token_id = tokenizer.token_to_id(piece)
        assert token_id is not None
        assert tokenizer.token_bytes(token_id) == data, piece
    pieces = Tokenizer(foreign_tokenizers.word_piece())
    assert [pieces.token_bytes(pieces.token_to_id(p) or 0) for p in ("##a", "b")] == [b"a", b" b"]
    with pytest.raises(TokenizerError, match=r"bytes"):
        tokenizer.pieces(True)


def test_bos_is_added_by_the_post_processor_alone(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_dir(byte_tokenizer(tmp_path, prepend_bos=True))
    assert tokenizer.bos_id == BOS_ID
    assert tokenizer.encode("Hi", add_special_tokens=True) == [BOS_ID, 72, 105]
    assert tokenizer.encode("<bos>Hi", add_special_tokens=False) == [BOS_ID, 72, 105]
    _edit(tmp_path, "tokenizer_config.json", add_bos_token=True)
    assert Tokenizer.from_dir(tmp_path).encode("Hi", True) == [BOS_ID, 72, 105]


def test_bos_declared_in_the_config_alone(tmp_path: Path) -> None:
    byte_tokenizer(tmp_path)
    flags = {"bos_token": "<turn>", "add_bos_token": True, "add_eos_token": True}
    _edit(tmp_path, "tokenizer_config.json", **flags)
    tokenizer = Tokenizer.from_dir(tmp_path)
    assert tokenizer.encode("Hi", add_special_tokens=True) == [TURN_ID, 72, 105, EOS_ID]
    assert tokenizer.encode("Hi", add_special_tokens=False) == [72, 105]


def test_named_tokens_are_special_even_if_not_flagged(tmp_path: Path) -> None:
    byte_tokenizer(tmp_path)
    _edit(tmp_path, "tokenizer_config.json", eos_token={"content": "</think>"}, pad_token="A")
    tokenizer = Tokenizer.from_dir(tmp_path)
    assert tokenizer.eos_ids == (259,)
    assert tokenizer.pad_id == 65
    assert {259, 65} < tokenizer.special_ids
    assert tokenizer.decode([72, 259, 65], skip_special_tokens=True) == "H"
    assert tokenizer.pieces(True)[259] == ""


def test_special_tokens_map_fills_in(tmp_path: Path) -> None:
    _edit(tmp_path, "special_tokens_map.json", bos_token={"content": "<b>"}, eos_token="<e>")
    assert SpecialTokens.from_dir(tmp_path).texts == {"bos_token": "<b>", "eos_token": "<e>"}
    _edit(tmp_path, "tokenizer_config.json", bos_token=None)
    assert SpecialTokens.from_dir(tmp_path).texts == {"eos_token": "<e>"}
    _edit(tmp_path, "tokenizer_config.json", eos_token=5)
    with pytest.raises(TokenizerError, match=r"eos_token .* must be a string"):
        SpecialTokens.from_dir(tmp_path)


def test_truncation_and_padding_left_in_the_file_are_ignored(tmp_path: Path) -> None:
    path = byte_tokenizer(tmp_path) / "tokenizer.json"
    backend = tokenizers.Tokenizer.from_file(str(path))
    backend.enable_truncation(3)
    backend.enable_padding(length=16)
    backend.save(str(path))
    assert len(Tokenizer.from_dir(tmp_path).encode("abcdef", True)) == 6


def test_loaders_are_asked_when_there_is_no_tokenizer_json(
    tmp_path: Path, byte_folder: Path
) -> None:
    seen: list[Path] = []

    def none(folder: Path) -> tokenizers.Tokenizer | None:
        seen.append(folder)
        return None

    def ranks(folder: Path) -> tokenizers.Tokenizer | None:
        seen.append(folder)
        return tokenizers.Tokenizer.from_file(str(byte_folder / "tokenizer.json"))

    assert Tokenizer.from_dir(tmp_path, [none, ranks]).encode("A", True) == [65]
    assert seen == [tmp_path, tmp_path]
    Tokenizer.from_dir(byte_folder, [none])
    assert len(seen) == 2


def test_links_into_another_folder(tmp_path: Path, byte_folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).symlink_to(byte_folder / name)
    assert Tokenizer.from_dir(tmp_path).eos_ids == (EOS_ID,)
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "tokenizer_config.json").symlink_to(tmp_path / "gone")
    with pytest.raises(TokenizerError, match=r"tokenizer_config.json is a link to .*gone"):
        Tokenizer.from_dir(tmp_path)


def test_faulty_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"looked for tokenizer.json, vocab.json"):
        Tokenizer.from_dir(tmp_path)
    with pytest.raises(TokenizerError, match=r"not a folder"):
        Tokenizer.from_dir(tmp_path / "none")
    byte_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("[1]")
    with pytest.raises(TokenizerError, match=r"tokenizer_config.json must hold a JSON object"):
        Tokenizer.from_dir(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(TokenizerError, match=r"tokenizer_config.json is not valid JSON"):
        Tokenizer.from_dir(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<none>"}')
    with pytest.raises(TokenizerError, match=r"'<none>' is not in the tokenizer's vocabulary"):
        Tokenizer.from_dir(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json as a tokenizer"):
        Tokenizer.from_dir(tmp_path)


def test_slow_files_need_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vocab.json").write_text("{}")
    monkeypatch.setattr("pegainfer_core.text.tokenizer_loading.find_spec", lambda name: None)
    with pytest.raises(TokenizerError, match=r"pip install 'pegainfer\[hf\]'"):
        Tokenizer.from_dir(tmp_path)


def test_texts_and_ids_that_cannot_be_converted(bytes_tokenizer: Tokenizer) -> None:
    with pytest.raises(TokenizerError, match=r"surrogate .* at character 1"):
        bytes_tokenizer.encode("a\ud800", add_special_tokens=False)
    with pytest.raises(TokenizerError, match=r"surrogate"):
        bytes_tokenizer.encode_batch(["a", "\udfff"], add_special_tokens=False)
    for bad in (-1, 2**32):
        with pytest.raises(TokenizerError, match=r"token ids must lie in"):
            bytes_tokenizer.decode([bad], skip_special_tokens=True)


def test_a_text_that_the_library_panics_at_is_refused(
    bytes_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PanicException(BaseException):
        """As of pyo3, which cannot be imported; 11 million blanks bring a real one in seconds."""

    class Panicking:
        def encode_batch_fast(self, texts: list[str], add_special_tokens: bool) -> None:
            raise PanicException("retry-limit-in-match over") if texts[0] else KeyboardInterrupt

    monkeypatch.setattr(bytes_tokenizer, "_backend", Panicking())
    with pytest.raises(TokenizerError, match=r"cannot be split into tokens: retry-limit"):
        bytes_tokenizer.encode(" " * 1_000_000, add_special_tokens=False)
    with pytest.raises(KeyboardInterrupt):
        bytes_tokenizer.encode_batch([""], add_special_tokens=False)


@pytest.mark.real_inputs
def test_qwen3_release(qwen3: Tokenizer) -> None:
    assert qwen3.vocab_size == 151_669
    assert qwen3.eos_ids == (151_645,)
    assert (qwen3.bos_id, qwen3.pad_id) == (None, 151_643)
    assert len(qwen3.special_ids) == 14
    text = "<|im_start|>user\nHallo, 世界! 🧭<|im_end|>\n"
    ids = qwen3.encode(text, add_special_tokens=True)
    assert ids == qwen3.encode(text, add_special_tokens=False)
    assert ids[0] == 151_644
    assert qwen3.decode(ids, skip_special_tokens=False) == text
    joined = b"".join(qwen3.token_bytes(token_id) or b"" for token_id in ids)
    assert joined == text.encode()
    assert qwen3.decode(qwen3.encode("<think>x</think>", False), True) == "<think>x</think>"


@pytest.mark.real_inputs
def test_deepseek_release_has_one_bos() -> None:
    tokenizer = Tokenizer.from_dir(released_tokenizer("deepseek_v2_lite"))
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (100_000, (100_001,))
    ids = tokenizer.encode("Hi", add_special_tokens=True)
    assert ids[0] == 100_000
    assert ids[1:] == tokenizer.encode("Hi", add_special_tokens=False)
    assert 100_000 not in ids[1:]
    spelled = tokenizer.encode("<｜begin▁of▁sentence｜>Hi", add_special_tokens=False)
    assert spelled == ids


@pytest.mark.hf
def test_files_that_only_transformers_reads(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    vocab = {chr(97 + i): i for i in range(3)} | {"ab": 3, "<|endoftext|>": 4}
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    config = {"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer.from_dir(tmp_path)
    assert tokenizer.encode("abc", add_special_tokens=False) == [3, 2]
    assert tokenizer.eos_ids == (4,)
