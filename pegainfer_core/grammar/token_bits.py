"""Sets of token ids as bits of int32 words, lowest id first: the form masks have everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    TokenBits = NDArray[np.int32]

__all__ = ["all_bits", "bits_of", "num_words"]


def num_words(vocab_size: int) -> int:
    """int32 words that hold a bit for each id."""
    return -(-vocab_size // 32)


def bits_of(token_ids: Iterable[int], vocab_size: int) -> TokenBits:
    """[num_words] int32 with the bits of these ids; those outside the vocabulary are left out."""
    held = np.zeros(num_words(vocab_size) * 32, np.bool_)
    held[[i for i in token_ids if 0 <= i < vocab_size]] = True
    return np.packbits(held, bitorder="little").view("<i4").astype(np.int32)


def all_bits(vocab_size: int) -> TokenBits:
    """[num_words] int32 with the bits of every id."""
    bits = np.full(num_words(vocab_size), -1, np.int32)
    if vocab_size % 32:
        bits[-1] = (1 << vocab_size % 32) - 1
    return bits
