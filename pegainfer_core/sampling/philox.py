"""The random numbers of sampling: Philox4x32-10, a counter-based generator.

Every draw is named by what it is for, not by how many draws came before it, so that it depends on
neither batch mates nor history. Plain integers: a device kernel gives the same bits.

Layout of a call, all words unsigned 32-bit, low word first:

    key      seed[0:32], seed[32:64]
    counter  a[0:32], a[32:64], b, purpose

    purpose 0, token choice: a = position of the chosen token in prompt + output, b = sample index
    purpose 1, seed of an unseeded request: a = request id, b = 0, and the key is the engine's seed

The draw is the first two output words, `word0 | word1 << 32`.
"""

from __future__ import annotations

__all__ = ["philox4x32", "request_seed", "token_bits"]

_MASK = 0xFFFFFFFF

# Multipliers and Weyl key increments of Salmon, Moraes, Dror and Shaw, "Parallel random numbers:
# as easy as 1, 2, 3" (SC'11).
_MULTIPLIER_0 = 0xD2511F53
_MULTIPLIER_1 = 0xCD9E8D57
_WEYL_0 = 0x9E3779B9
_WEYL_1 = 0xBB67AE85
_ROUNDS = 10

_TOKEN_CHOICE = 0
_REQUEST_SEED = 1

Words4 = tuple[int, int, int, int]


def philox4x32(counter: Words4, key: tuple[int, int]) -> Words4:
    """Ten rounds of Philox4x32.

    Args:
        counter: Four unsigned 32-bit words.
        key: Two unsigned 32-bit words.

    Returns:
        Four unsigned 32-bit words.
    """
    word0, word1, word2, word3 = counter
    key0, key1 = key
    for _ in range(_ROUNDS):
        product0 = word0 * _MULTIPLIER_0
        product1 = word2 * _MULTIPLIER_1
        word0 = (product1 >> 32) ^ word1 ^ key0
        word2 = (product0 >> 32) ^ word3 ^ key1
        word1 = product1 & _MASK
        word3 = product0 & _MASK
        key0 = (key0 + _WEYL_0) & _MASK
        key1 = (key1 + _WEYL_1) & _MASK
    return word0, word1, word2, word3


def _bits(seed: int, wide: int, narrow: int, purpose: int) -> int:
    counter = (wide & _MASK, wide >> 32 & _MASK, narrow & _MASK, purpose)
    words = philox4x32(counter, (seed & _MASK, seed >> 32 & _MASK))
    return words[0] | words[1] << 32


def token_bits(seed: int, sample_index: int, position: int) -> int:
    """The 64 random bits that choose one token.

    Args:
        seed: The request's seed; negative seeds stand for their two's complement in 64 bits.
        sample_index: Which of several samples of one prompt this is.
        position: Index the chosen token will have in prompt + output.

    Returns:
        An unsigned 64-bit integer.
    """
    return _bits(seed, position, sample_index, _TOKEN_CHOICE)


def request_seed(engine_seed: int, request_id: int) -> int:
    """Seed of a request that brought none: differs by request, survives preemption.

    Args:
        engine_seed: The engine's `--seed`.
        request_id: The request's id, unique in its engine.

    Returns:
        An unsigned 64-bit integer.
    """
    return _bits(engine_seed, request_id, 0, _REQUEST_SEED)
