"""The rule by which a simulated model chooses tokens: each depends on all tokens before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

START: Final = 0x9E3779B97F4A7C15
"""Digest of no tokens."""

_MULTIPLIER: Final = 0xD1342543DE82EF95
_MASK: Final = (1 << 64) - 1


def extend(digest: int, token_ids: Iterable[int]) -> int:
    """The digest of tokens that follow those of `digest`; equal in every process and version."""
    for token_id in token_ids:
        digest = (digest * _MULTIPLIER + token_id + 1) & _MASK
    return digest


def choose(digest: int, vocab_size: int) -> int:
    """The token after those of `digest`; never the end token."""
    return (digest >> 24) % (vocab_size - 1)


def end_token(vocab_size: int) -> int:
    """The token that ends an answer."""
    return vocab_size - 1


def answer(prompt_token_ids: Iterable[int], num_tokens: int, vocab_size: int) -> list[int]:
    """What a prompt is answered with, from the rule alone."""
    digest = extend(START, prompt_token_ids)
    token_ids = []
    for _ in range(num_tokens):
        token_ids.append(choose(digest, vocab_size))
        digest = extend(digest, token_ids[-1:])
    return token_ids
