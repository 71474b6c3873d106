"""What clients send and when: the load of a simulation."""

from __future__ import annotations

from typing import Protocol

import msgspec


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a trace; its answer has exactly `max_tokens` tokens.

    Attributes:
        at_s: When it is sent.
        prompt_token_ids: Its prompt.
        max_tokens: Length of its answer.
        has_limit: Whether the client asks for that length. Without, it sets no limit, and the model
            ends the answer by an end token that the engine cannot foresee.
        priority: Lower runs first.
        client: Who sends it, by the trace's own count.
        turn: Its place among that client's.
    """

    at_s: float
    prompt_token_ids: list[int]
    max_tokens: int
    has_limit: bool = True
    priority: int = 0
    client: int = 0
    turn: int = 0


class Trace(Protocol):
    """A load. One object may be simulated again and again, always with the same requests."""

    def opening(self) -> list[Arrival]:
        """The requests that wait for no answer; starts the trace from its beginning."""
        ...

    def following(self, arrival: Arrival, token_ids: list[int], ended_s: float) -> list[Arrival]:
        """The requests that an answer brings about.

        Args:
            arrival: The request that was answered.
            token_ids: Its answer.
            ended_s: When its client has all of it.
        """
        ...
