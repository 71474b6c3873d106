"""Requests that come whatever the engine does."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from pegainfer_core.testing.simulator.prompts import random_prompt
from pegainfer_core.testing.simulator.trace import Arrival

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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
        spread: float = 0.0,
        has_limit: bool = True,
    ) -> OpenTrace:
        """Random prompts with exponential gaps; of one length, as `tools/bench/load.py` sends them.

        Args:
            num_requests: Requests.
            per_s: Mean rate; infinite for all at once.
            input_tokens: Length of prompts.
            output_tokens: Length of answers.
            seed: That client's `--seed`.
            num_warmups: That client's `--warmup`, which decides what the gaps are drawn behind.
            spread: Share of its mean by which a prompt's length differs at most, evenly.
            has_limit: Whether requests say how long their answers are.
        """
        rng = Random(seed)
        low, high = round(input_tokens * (1 - spread)), round(input_tokens * (1 + spread))
        lengths = [rng.randint(low, high) if spread else low for _ in range(num_requests)]
        prompts = [random_prompt(rng, length) for length in lengths]
        for _ in range(num_warmups):
            random_prompt(rng, input_tokens)
        arrivals, at_s = [], 0.0
        for client, prompt in enumerate(prompts):
            arrivals.append(
                Arrival(
                    at_s=at_s,
                    prompt_token_ids=prompt,
                    max_tokens=output_tokens,
                    has_limit=has_limit,
                    client=client,
                )
            )
            at_s += rng.expovariate(per_s)
        return cls(arrivals)

    @classmethod
    def injected(
        cls,
        background: OpenTrace,
        *,
        input_tokens: Sequence[int],
        output_tokens: int,
        every_s: float,
        seed: int,
    ) -> OpenTrace:
        """A load with other prompts injected at even times, the first after one gap.

        Args:
            background: The load; its clients keep their numbers, the others come behind.
            input_tokens: Lengths of the injected prompts, one each.
            output_tokens: Length of their answers.
            every_s: Time between them.
            seed: Of their ids.
        """
        rng = Random(seed)
        arrivals = background.opening()
        first = max((arrival.client for arrival in arrivals), default=-1) + 1
        arrivals += [
            Arrival(
                at_s=every_s * (number + 1),
                prompt_token_ids=random_prompt(rng, num_tokens),
                max_tokens=output_tokens,
                client=first + number,
            )
            for number, num_tokens in enumerate(input_tokens)
        ]
        return cls(arrivals)

    def opening(self) -> list[Arrival]:
        """All of them."""
        return list(self._arrivals)

    def following(self, arrival: Arrival, token_ids: list[int], ended_s: float) -> list[Arrival]:
        """None."""
        return []
