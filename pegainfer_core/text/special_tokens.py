"""The named special tokens (`bos_token`, `eos_token`, ...) that a checkpoint declares.

Knows their texts only; ids are the tokenizer's business.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from pegainfer_core.text.errors import TokenizerError
from pegainfer_core.text.json_file import find_file, read_json_object

__all__ = ["SpecialTokens"]

_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token")


class SpecialTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Named special tokens, as texts.

    Attributes:
        texts: name (`eos_token`) to text (`<|im_end|>`), for the names that are set.
        add_bos: the checkpoint asks for its bos token before every text.
        add_eos: the checkpoint asks for its eos token after every text.
    """

    texts: dict[str, str] = {}
    add_bos: bool = False
    add_eos: bool = False

    @classmethod
    def from_dir(cls, directory: Path) -> "SpecialTokens":
        """Read tokenizer_config.json, then special_tokens_map.json for names the first lacks.

        A name set to null in tokenizer_config.json is unset, whatever the other file says.

        Raises:
            TokenizerError: a file is unreadable or a token has an unknown form.
        """
        config = _read(directory, "tokenizer_config.json")
        declared = {**_read(directory, "special_tokens_map.json"), **config}
        texts = {
            name: text
            for name in _NAMES
            if (text := _token_text(declared, name, directory)) is not None
        }
        return cls(
            texts=texts,
            add_bos=config.get("add_bos_token") is True,
            add_eos=config.get("add_eos_token") is True,
        )


def _read(directory: Path, name: str) -> dict[str, object]:
    path = find_file(directory, name, TokenizerError)
    return {} if path is None else read_json_object(path, TokenizerError)


def _token_text(declared: Mapping[str, object], name: str, directory: Path) -> str | None:
    """A token is written as a string or as an object with a `content`."""
    value = declared.get(name)
    if isinstance(value, dict):
        value = value.get("content")
    if value is None or isinstance(value, str):
        return value or None
    raise TokenizerError(f"{name} in {directory} must be a string or an object, not {value!r}")
