"""A tokenizer for tests whose ids are bytes, written as the files of a checkpoint folder.

Knows no model: a test that needs one puts the weights beside these files.
"""

import json
from pathlib import Path
from typing import Final

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from pegainfer_core.text.byte_alphabet import BYTE_TO_CHAR

__all__ = [
    "BOS_ID",
    "CONTENT_ID",
    "END_THINK_ID",
    "EOS_ID",
    "THINK_ID",
    "TURN_ID",
    "byte_tokenizer",
]

EOS_ID: Final = 256
TURN_ID: Final = 257
THINK_ID: Final = 258
END_THINK_ID: Final = 259
CONTENT_ID: Final = 260
#: Only with `prepend_bos`.
BOS_ID: Final = 261

_SPECIAL: Final = ("<eos>", "<turn>")
_ADDED: Final = ("<think>", "</think>", "ab##cd")


def _build(prepend_bos: bool) -> Tokenizer:
    vocab = {BYTE_TO_CHAR[byte]: byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    for text in _SPECIAL:
        tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False)])
    for text in _ADDED:
        tokenizer.add_tokens([AddedToken(text, special=False, normalized=False)])
    if prepend_bos:
        tokenizer.add_special_tokens([AddedToken("<bos>", special=True, normalized=False)])
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", BOS_ID)]
        )
    return tokenizer


def byte_tokenizer(
    directory: str | Path,
    *,
    chat_template: str | list[dict[str, str]] | None = None,
    prepend_bos: bool = False,
) -> Path:
    """Write `tokenizer.json` and `tokenizer_config.json` of the byte tokenizer.

    Id n is byte n for 0..255; 256 `<eos>` and 257 `<turn>` are special; 258 `<think>`, 259
    `</think>` and 260 `ab##cd` are added but not special. Ids from 261 on have no entry.

    Args:
        directory: folder to write into; made if missing.
        chat_template: goes into tokenizer_config.json as is; absent when None.
        prepend_bos: add a special `<bos>` (261) which the post-processor puts before every
            text that is encoded with special tokens.

    Returns:
        The folder.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    _build(prepend_bos).save(str(folder / "tokenizer.json"))
    config: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<bos>" if prepend_bos else None,
        "eos_token": "<eos>",
        "pad_token": None,
        "unk_token": None,
        "clean_up_tokenization_spaces": False,
    }
    if chat_template is not None:
        config["chat_template"] = chat_template
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    return folder
