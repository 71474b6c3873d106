"""A fixed number of clients, each sending again as soon as it was answered."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from pegainfer_core.testing.simulator.prompts import random_prompt
from pegainfer_core.testing.simulator.trace import Arrival

if TYPE_CHECKING:
    from collections.abc import Iterator


class ClosedTrace:
    """Implements `Trace` with random prompts of one length, as `tools/bench/load.py` sends them.

    Args:
        num_requests: Requests of all clients.
        concurrency: Clients.
        input_tokens: Length of prompts.
        output_tokens: Length of answers.
        seed: Of the prompts.
    """

    def __init__(
        self,
        *,
        num_requests: int,
        concurrency: int,
        input_tokens: int,
        output_tokens: int,
        seed: int,
    ) -> None:
        rng = Random(seed)
        self._prompts = [random_prompt(rng, input_tokens) for _ in range(num_requests)]
        self._concurrency = concurrency
        self._output_tokens = output_tokens
        self._unsent: Iterator[list[int]] = iter(())

    def opening(self) -> list[Arrival]:
        """One request of each client."""
        self._unsent = iter(self._prompts)
        clients = range(self._concurrency)
        return [arrival for client in clients for arrival in self._next(client, 0, 0.0)]

    def following(self, arrival: Arrival, token_ids: list[int], ended_s: float) -> list[Arrival]:
        """The client's next request, if any is left."""
        return self._next(arrival.client, arrival.turn + 1, ended_s)

    def _next(self, client: int, turn: int, at_s: float) -> list[Arrival]:
        prompt = next(self._unsent, None)
        if prompt is None:
            return []
        return [
            Arrival(
                at_s=at_s,
                prompt_token_ids=prompt,
                max_tokens=self._output_tokens,
                client=client,
                turn=turn,
            )
        ]
