"""Prompts of random token ids, of exactly so many tokens, the same ones for the same seed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

from pegainfer_bench.dataset.request import BenchRequest

if TYPE_CHECKING:
    from collections.abc import Iterator


class RandomPrompts(msgspec.Struct, frozen=True, kw_only=True):
    """What random prompts look like.

    Attributes:
        input_tokens: Tokens of a prompt behind the common prefix.
        output_tokens: Tokens to generate.
        range_ratio: r draws both lengths evenly from (1 - r) to (1 + r) times those, at least 1.
        prefix_tokens: Tokens that all prompts begin with.
        vocab_low: Smallest id.
        vocab_high: Ids stay below it.
    """

    input_tokens: int
    output_tokens: int
    range_ratio: float = 0.0
    prefix_tokens: int = 0
    vocab_low: int = 0
    vocab_high: int

    def draw(self, count: int, rng: random.Random, seed: int) -> list[BenchRequest]:
        """Draw requests.

        Args:
            count: How many.
            rng: Gives the prefix, then the prompts' ids in order, and nothing else, so that other
                clients can make the same prompts of the same seed.
            seed: Of the lengths, which have a generator of their own.
        """
        lengths = self._lengths(random.Random(f"lengths of {seed}"))
        prefix = self._ids(self.prefix_tokens, rng)
        requests = []
        for _ in range(count):
            input_tokens, output_tokens = next(lengths)
            prompt = prefix + self._ids(input_tokens, rng)
            requests.append(BenchRequest(prompt=prompt, output_tokens=output_tokens))
        return requests

    def _ids(self, count: int, rng: random.Random) -> list[int]:
        low, high = self.vocab_low, self.vocab_high
        return [rng.randrange(low, high) for _ in range(count)]

    def _lengths(self, rng: random.Random) -> Iterator[tuple[int, int]]:
        while True:
            yield self._length(self.input_tokens, rng), self._length(self.output_tokens, rng)

    def _length(self, middle: int, rng: random.Random) -> int:
        low = max(int(middle * (1 - self.range_ratio)), 1)
        return rng.randint(low, max(int(middle * (1 + self.range_ratio)), low))
