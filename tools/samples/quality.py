"""Judge generated text by counting: does it repeat itself, are its words words, does it end.

Knows no model and needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from samples.prompts import CHAT_PROMPTS, COMPLETION_PROMPTS
from samples.words import words_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenizers import Tokenizer

    from samples.generation import Generation, Generator

COMPLETION_TOKENS = 128
# A passage may end by itself, but not at once, and most of them must not.
MIN_COMPLETION_TOKENS = 16
MIN_COMPLETION_SHARE = 2 / 3
CHAT_TOKENS = 256
MIN_DISTINCT_SHARE = 0.60
MIN_KNOWN_WORD_SHARE = 0.95
_NGRAM = 4


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Figures of one generation; shares are 0 to 1."""

    kind: str
    generation: Generation
    num_tokens: int
    distinct_share: float
    num_words: int
    num_known_words: int

    @property
    def faults(self) -> list[str]:
        """What is wrong with this text on its own."""
        found: list[str] = []
        if self.distinct_share < MIN_DISTINCT_SHARE:
            found.append(f"only {self.distinct_share:.0%} distinct {_NGRAM}-grams")
        if self.kind == "chat" and self.generation.finish_reason != "stop":
            found.append(f"ends with {self.generation.finish_reason!r}, not 'stop'")
        if self.kind == "completion" and self.num_tokens < MIN_COMPLETION_TOKENS:
            found.append(f"only {self.num_tokens} tokens")
        if self.num_words < 3:
            found.append(f"only {self.num_words} words")
        return found


def distinct_share(token_ids: Sequence[int]) -> float:
    """Share of the token 4-grams that are different from all earlier ones."""
    grams = [tuple(token_ids[i : i + _NGRAM]) for i in range(len(token_ids) - _NGRAM + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


def judge(
    kind: str, generation: Generation, tokenizer: Tokenizer, known: frozenset[str]
) -> Judgement:
    """Count one generation's tokens and words."""
    token_ids = tokenizer.encode(generation.text, add_special_tokens=False).ids
    words = words_of(generation.text)
    if generation.finish_reason == "length":
        words = words[:-1]  # The limit may have cut the last word.
    return Judgement(
        kind=kind,
        generation=generation,
        num_tokens=len(token_ids),
        distinct_share=distinct_share(token_ids),
        num_words=len(words),
        num_known_words=sum(word in known for word in words),
    )


def judge_all(generator: Generator, tokenizer: Tokenizer, known: frozenset[str]) -> list[Judgement]:
    """Run every fixed prompt."""
    completions = (generator.complete(p, COMPLETION_TOKENS) for p in COMPLETION_PROMPTS)
    chats = (generator.chat(p, CHAT_TOKENS) for p in CHAT_PROMPTS)
    return [
        *(judge("completion", generation, tokenizer, known) for generation in completions),
        *(judge("chat", generation, tokenizer, known) for generation in chats),
    ]


def known_word_share(judgements: Sequence[Judgement]) -> float:
    """Share of all generated words that occur in the corpus."""
    total = sum(judgement.num_words for judgement in judgements)
    return sum(judgement.num_known_words for judgement in judgements) / max(1, total)


def completion_share(judgements: Sequence[Judgement]) -> float:
    """Share of the tokens that the completions could have that they have."""
    lengths = [judged.num_tokens for judged in judgements if judged.kind == "completion"]
    return sum(lengths) / (COMPLETION_TOKENS * len(lengths)) if lengths else 1.0


def _described(judged: Judgement) -> list[str]:
    generation = judged.generation
    return [
        f"[{judged.kind}] {generation.prompt}",
        f"    {generation.text.strip()!r}",
        f"    {judged.num_tokens} tokens, ends with {generation.finish_reason!r}, "
        f"{judged.distinct_share:.0%} distinct {_NGRAM}-grams, "
        f"{judged.num_known_words}/{judged.num_words} words known",
        *(f"    FAULT: {fault}" for fault in judged.faults),
    ]


def report(judgements: Sequence[Judgement]) -> tuple[str, bool]:
    """Write every text with its figures, and whether all of it passes."""
    lines = [line for judged in judgements for line in _described(judged)]
    num_faulty = sum(bool(judged.faults) for judged in judgements)
    words, length = known_word_share(judgements), completion_share(judgements)
    passed = num_faulty == 0 and words >= MIN_KNOWN_WORD_SHARE and length >= MIN_COMPLETION_SHARE
    lines.append(
        f"{len(judgements) - num_faulty} of {len(judgements)} texts without fault, "
        f"{words:.1%} of words known (at least {MIN_KNOWN_WORD_SHARE:.0%} needed), "
        f"completions {length:.0%} of full length (at least {MIN_COMPLETION_SHARE:.0%} needed): "
        f"{'PASS' if passed else 'FAIL'}"
    )
    return "\n".join(lines), passed
