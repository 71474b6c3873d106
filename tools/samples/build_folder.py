"""The folder between preparing and training: token streams and tokenizer."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from samples.tokenizer import VOCAB_SIZE, train_tokenizer
from samples.words import WORD_LIST, write_words

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from samples.corpus import Corpus

_STREAMS = "streams.npz"
TOKENIZER = "tokenizer.json"


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Units one after another: token ids [num_tokens], and where each unit starts [num_units]."""

    token_ids: NDArray[np.uint16]
    starts: NDArray[np.int64]


def _stream(tokenizer: Tokenizer, texts: list[str]) -> Stream:
    rows = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    token_ids = np.concatenate([np.array(row, dtype=np.uint16) for row in rows])
    return Stream(token_ids=token_ids, starts=np.cumsum(lengths) - lengths)


def write_build(corpus: Corpus, folder: Path) -> str:
    """Train the tokenizer, encode the corpus, write all; returns a line of figures.

    The word list goes beside this module: it is committed, so that checks need no corpus.
    """
    began_s = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(corpus.train)
    if tokenizer.get_vocab_size() != VOCAB_SIZE:
        raise ValueError(f"tokenizer has {tokenizer.get_vocab_size()} ids, expected {VOCAB_SIZE}")
    (folder / TOKENIZER).write_text(tokenizer.to_str(pretty=False) + "\n", encoding="utf-8")
    train, held_out = _stream(tokenizer, corpus.train), _stream(tokenizer, corpus.held_out)
    np.savez_compressed(
        folder / _STREAMS,
        train=train.token_ids,
        train_starts=train.starts,
        held_out=held_out.token_ids,
        held_out_starts=held_out.starts,
    )
    write_words(corpus.words, WORD_LIST)
    return (
        f"{len(train.starts)} units, {train.token_ids.size} tokens to train on, "
        f"{held_out.token_ids.size} held out, {len(corpus.words)} words, "
        f"{time.monotonic() - began_s:.0f} s"
    )


def read_streams(folder: Path) -> tuple[Stream, Stream]:
    """Read (training stream, held-out stream).

    Raises:
        FileNotFoundError: `folder` was not prepared.
    """
    path = folder / _STREAMS
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; run with --prepare first")
    with np.load(path) as arrays:
        train = Stream(token_ids=arrays["train"], starts=arrays["train_starts"])
        held_out = Stream(token_ids=arrays["held_out"], starts=arrays["held_out_starts"])
    return train, held_out
