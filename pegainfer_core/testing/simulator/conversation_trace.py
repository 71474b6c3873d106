"""Clients that talk: each prompt is all that was said before and something new."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from pegainfer_core.testing.simulator.prompts import random_prompt
from pegainfer_core.testing.simulator.trace import Arrival


class _Turn(NamedTuple):
    said: list[int]
    answer_tokens: int
    think_s: float
    """Between the answer before and this turn."""


class ConversationTrace:
    """Implements `Trace` with conversations that begin at random times and share a prefix.

    Lengths and times are drawn beforehand, so they do not depend on the engine: lengths evenly
    between half and one and a half of their mean, pauses and gaps between beginnings exponentially.

    Args:
        num_conversations: Conversations.
        per_s: Mean rate at which they begin.
        num_turns: Requests of each.
        prefix_tokens: Tokens that all of them begin with.
        said_tokens: Mean of new tokens in a turn.
        answer_tokens: Mean length of answers.
        think_s: Mean pause between an answer and the next turn.
        seed: Of everything.
    """

    def __init__(
        self,
        *,
        num_conversations: int,
        per_s: float,
        num_turns: int,
        prefix_tokens: int,
        said_tokens: int,
        answer_tokens: int,
        think_s: float,
        seed: int,
    ) -> None:
        rng = Random(seed)
        self._prefix = random_prompt(rng, prefix_tokens)
        self._begin_s = [0.0]
        for _ in range(num_conversations - 1):
            self._begin_s.append(self._begin_s[-1] + rng.expovariate(per_s))
        self._turns = [
            [
                _Turn(
                    random_prompt(rng, _around(rng, said_tokens)),
                    _around(rng, answer_tokens),
                    rng.expovariate(1 / think_s) if think_s else 0.0,
                )
                for _ in range(num_turns)
            ]
            for _ in range(num_conversations)
        ]

    @classmethod
    def chat(cls, *, num_conversations: int, per_s: float, seed: int) -> ConversationTrace:
        """People: a system prompt of 200 tokens, eight turns of 150 in and 250 out, 10 s apart."""
        return cls(
            num_conversations=num_conversations,
            per_s=per_s,
            num_turns=8,
            prefix_tokens=200,
            said_tokens=150,
            answer_tokens=250,
            think_s=10.0,
            seed=seed,
        )

    @classmethod
    def agents(cls, *, num_agents: int, per_s: float, seed: int) -> ConversationTrace:
        """Agents: instructions and tools of 20,000 tokens, 12 calls whose results are 800 long."""
        return cls(
            num_conversations=num_agents,
            per_s=per_s,
            num_turns=12,
            prefix_tokens=20_000,
            said_tokens=800,
            answer_tokens=120,
            think_s=0.5,
            seed=seed,
        )

    def opening(self) -> list[Arrival]:
        """The first turn of each."""
        return [
            self._arrival(client, 0, begin_s, self._prefix)
            for client, begin_s in enumerate(self._begin_s)
        ]

    def following(self, arrival: Arrival, token_ids: list[int], ended_s: float) -> list[Arrival]:
        """The next turn, once its client has thought."""
        client, turn = arrival.client, arrival.turn + 1
        if turn == len(self._turns[client]):
            return []
        at_s = ended_s + self._turns[client][turn].think_s
        return [self._arrival(client, turn, at_s, arrival.prompt_token_ids + token_ids)]

    def _arrival(self, client: int, turn: int, at_s: float, history: list[int]) -> Arrival:
        said, answer_tokens, _ = self._turns[client][turn]
        return Arrival(
            at_s=at_s,
            prompt_token_ids=history + said,
            max_tokens=answer_tokens,
            client=client,
            turn=turn,
        )


def _around(rng: Random, mean: int) -> int:
    return rng.randint(max(mean // 2, 1), mean + mean // 2)
