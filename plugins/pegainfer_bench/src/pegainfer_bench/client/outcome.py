"""What came of one request: times and counts. Times are seconds of one clock."""

from __future__ import annotations

from itertools import pairwise

import msgspec


class Outcome(msgspec.Struct, kw_only=True):
    """One request, filled in while its answer arrives.

    Attributes:
        asked_tokens: Tokens asked for.
        sent_s: When it was handed to the connection.
        event_times_s: Arrival of each event with a part of the answer.
        prompt_tokens: From usage; None when the server did not say.
        output_tokens: From usage, else the number of events.
        cached_tokens: Prompt tokens that came from the server's prefix cache.
        has_usage: Whether the counts are the server's.
        error: Why it failed; empty when it did not.
    """

    asked_tokens: int
    sent_s: float = 0.0
    event_times_s: list[float] = []
    prompt_tokens: int | None = None
    output_tokens: int = 0
    cached_tokens: int = 0
    has_usage: bool = False
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether it was answered."""
        return not self.error

    @property
    def is_short(self) -> bool:
        """Whether it was answered with fewer tokens than asked for."""
        return self.ok and self.output_tokens < self.asked_tokens

    @property
    def ttft_s(self) -> float:
        """From sending to the first event."""
        return self.event_times_s[0] - self.sent_s

    @property
    def e2el_s(self) -> float:
        """From sending to the last event."""
        return self.event_times_s[-1] - self.sent_s

    @property
    def tpot_s(self) -> float | None:
        """Time a token after the first: (last - first event) / (tokens - 1); None for one token."""
        if self.output_tokens < 2:
            return None
        return (self.event_times_s[-1] - self.event_times_s[0]) / (self.output_tokens - 1)

    @property
    def itl_s(self) -> list[float]:
        """Gaps between events."""
        return [later - earlier for earlier, later in pairwise(self.event_times_s)]
