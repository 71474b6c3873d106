"""Train the sample models' byte-level BPE and write it as the two Hugging Face files."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from samples.chat_format import CHAT_TEMPLATE, END_OF_TEXT, SPECIAL_TOKENS, TURN_END

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

VOCAB_SIZE = 4096
MAX_TOKENS = 2048
# How Qwen2 and Qwen3 cut text before BPE; the alternatives are tried in this order.
_SPLIT_ALTERNATIVES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    r"[^\r\n\p{L}\p{N}]?\p{L}+",
    r"\p{N}",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
)


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Train a BPE of `VOCAB_SIZE` ids, the last of which are the special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex("|".join(_SPLIT_ALTERNATIVES)), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    marks = re.compile("|".join(re.escape(token) for token in SPECIAL_TOKENS))
    plain = (marks.sub("\n", text) for text in texts)
    tokenizer.train_from_iterator(plain, trainer)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path, max_tokens: int) -> None:
    """Write tokenizer.json (compact) and tokenizer_config.json with the chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=False) + "\n", encoding="utf-8")
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "add_prefix_space": False,
        "bos_token": None,
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "unk_token": None,
        "model_max_length": max_tokens,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
