"""Split English prose into sentences. Knows abbreviations, not where the text comes from."""

from __future__ import annotations

import re

_BOUNDARY = re.compile(r"[.!?]+[\"')]*\s+(?=[\"'(]?[A-Z0-9])")
_ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|St|Gen|Col|Capt|Maj|Lieut|Lt|Messrs|Hon|Rev|Gov|Sen|Rep|No|Nos|Vol|Art"
    r"|Sec|viz|vs|etc|[A-Z])\.)\s*$"
)


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Find (start, end) of every sentence, without the whitespace between them."""
    spans: list[tuple[int, int]] = []
    start = 0
    for match in _BOUNDARY.finditer(text):
        if _ABBREVIATION.search(text, start, match.end()):
            continue
        spans.append((start, match.start() + len(match.group().rstrip())))
        start = match.end()
    end = len(text.rstrip())
    return [*spans, (start, end)] if start < end else spans


def split_sentences(text: str) -> list[str]:
    """Cut text at full stops, question and exclamation marks that end a sentence."""
    return [text[start:end] for start, end in sentence_spans(text)]


def num_words(text: str) -> int:
    """Count whitespace-separated words."""
    return len(text.split())
