"""Requests that come whatever the engine does."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from pegainfer_core.testing.simulator.prompts import random_prompt
from pegainfer_core.testing.simulator.trace import Arrival

if TYPE_CHECKING:
    from collections.abc import Iterable


class OpenTrace:
    """Implements `Trace` with arrivals that are known beforehand."""

    def __init__(self, arrivals: Iterable[Arrival]) -> None:
        self._arrivals = list(arrivals)

    @classmethod
    def poisson(
        cls,
        *,
        num_requests: int,
        per_s: float,
        input_tokens: int,
        output_tokens: int,
        seed: int,
        num_warmups: int = 0,
    ) -> OpenTrace:
        """Random prompts of one length with exponential gaps, as `tools/bench/load.py` sends them.

        Args:
            num_requests: Requests.
            per_s: Mean rate.
            input_tokens: Length of prompts.
            output_tokens: Length of answers.
            seed: That client's `--seed`.
            num_warmups: That client's `--warmup`, which decides what the gaps are drawn behind.
        """
        rng = Random(seed)
        prompts = [random_prompt(rng, input_tokens) for _ in range(num_requests)]
        for _ in range(num_warmups):
            random_prompt(rng, input_tokens)
        arrivals, at_s = [], 0.0
        for client, prompt in enumerate(prompts):
            arrivals.append(
                Arrival(at_s=at_s, prompt_token_ids=prompt, max_tokens=output_tokens, client=client)
            )
            at_s += rng.expovariate(per_s)
        return cls(arrivals)

    def opening(self) -> list[Arrival]:
        """All of them."""
        return list(self._arrivals)

    def following(self, arrival: Arrival, token_ids: list[int], ended_s: float) -> list[Arrival]:
        """None."""
        return []
