import json
from pathlib import Path

import pytest

from pegainfer_core.testing.byte_tokenizer import EOS_ID, TURN_ID
from pegainfer_core.text import (
    GenerationConfigError,
    GenerationDefaults,
    Tokenizer,
    end_token_ids,
)


def _folder(folder: Path, **values: object) -> Path:
    (folder / "generation_config.json").write_text(json.dumps(values))
    return folder


def test_values_as_written(tmp_path: Path) -> None:
    _folder(
        tmp_path,
        do_sample=True,
        temperature=0.6,
        top_p=0.95,
        top_k=20,
        min_p=0,
        repetition_penalty=1.1,
        max_new_tokens=256,
        max_length=2048,
        eos_token_id=[TURN_ID, EOS_ID],
        pad_token_id=1,
        transformers_version="4.51.0",
    )
    defaults = GenerationDefaults.from_dir(tmp_path)
    assert defaults == GenerationDefaults(
        temperature=0.6,
        top_p=0.95,
        top_k=20,
        min_p=0.0,
        repetition_penalty=1.1,
        max_new_tokens=256,
        eos_token_ids=(TURN_ID, EOS_ID),
    )
    assert defaults.sampling() == {
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 20,
        "min_p": 0.0,
        "repetition_penalty": 1.1,
        "max_new_tokens": 256,
    }


def test_nothing_is_invented(tmp_path: Path) -> None:
    assert GenerationDefaults.from_dir(tmp_path) == GenerationDefaults()
    assert GenerationDefaults().sampling() == {}
    _folder(tmp_path, do_sample=False, temperature=None)
    assert GenerationDefaults.from_dir(tmp_path) == GenerationDefaults()


def test_none_keeps_the_end_tokens(tmp_path: Path) -> None:
    _folder(tmp_path, temperature=0.6, eos_token_id=7)
    defaults = GenerationDefaults.from_dir(tmp_path, source="none")
    assert defaults == GenerationDefaults(eos_token_ids=(7,))


def test_another_source(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    _folder(other, top_k=5)
    for source in (str(other), str(other / "generation_config.json")):
        assert GenerationDefaults.from_dir(tmp_path, source=source).top_k == 5
    with pytest.raises(GenerationConfigError, match=r"'auto' or 'none'"):
        GenerationDefaults.from_dir(tmp_path, source=str(tmp_path / "gone"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", "0.5"),
        ("temperature", True),
        ("top_p", 0),
        ("top_p", 1.01),
        ("top_k", -2),
        ("top_k", 2.0),
        ("min_p", 1.5),
        ("repetition_penalty", 0),
        ("max_new_tokens", 0),
        ("eos_token_id", "256"),
        ("eos_token_id", [256, -1]),
        ("eos_token_id", True),
    ],
)
def test_bad_values_are_named(tmp_path: Path, name: str, value: object) -> None:
    _folder(tmp_path, **{name: value})
    with pytest.raises(GenerationConfigError, match=rf"{name} in .*generation_config\.json must"):
        GenerationDefaults.from_dir(tmp_path)


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(GenerationConfigError, match=r"generation_config.json is not valid JSON"):
        GenerationDefaults.from_dir(tmp_path)


def test_end_tokens_are_the_union(bytes_tokenizer: Tokenizer) -> None:
    none = GenerationDefaults()
    both = GenerationDefaults(eos_token_ids=(EOS_ID, TURN_ID))
    turn = GenerationDefaults(eos_token_ids=(TURN_ID,))
    config: dict[str, object] = {"eos_token_id": EOS_ID}
    assert end_token_ids(config, none, bytes_tokenizer) == {EOS_ID}
    assert end_token_ids(config, both, bytes_tokenizer) == {EOS_ID, TURN_ID}
    assert end_token_ids(config, turn, bytes_tokenizer) == {EOS_ID, TURN_ID}
    assert end_token_ids({}, none, bytes_tokenizer) == {EOS_ID}
    nested = {"eos_token_id": None, "text_config": {"eos_token_id": [1, 2]}}
    assert end_token_ids(nested, none, bytes_tokenizer) == {1, 2, EOS_ID}
    with pytest.raises(GenerationConfigError, match=r"text_config.eos_token_id in config.json"):
        end_token_ids({"text_config": {"eos_token_id": "x"}}, none, bytes_tokenizer)
