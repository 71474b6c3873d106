"""Random prompts, drawn as `tools/bench/load.py` draws them: equal seeds, equal ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

_LOW, _HIGH = 1000, 100_000  # so the plan's vocabulary must not be smaller


def random_prompt(rng: Random, num_tokens: int) -> list[int]:
    """So many ids."""
    return [rng.randrange(_LOW, _HIGH) for _ in range(num_tokens)]
