"""What counts as a word, and the committed list of the corpus's words."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

WORD_LIST = Path(__file__).with_name("corpus_words.txt.gz")
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)*")


def words_of(text: str) -> list[str]:
    """Lower-cased words of a text; an apostrophe inside belongs to the word."""
    return _WORD.findall(text.lower())


def write_words(words: list[str], path: Path) -> None:
    """Write one word a line, gzip-compressed; equal words give equal bytes."""
    raw = ("\n".join(words) + "\n").encode()
    path.write_bytes(gzip.compress(raw, compresslevel=9, mtime=0))


def read_words(path: Path) -> frozenset[str]:
    """Read what `write_words` wrote."""
    return frozenset(gzip.decompress(path.read_bytes()).decode().split())
