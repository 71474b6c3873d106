"""When a request came, began and got its tokens. Knows nothing of what they say."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegainfer_server.metrics import Histogram


class Timeline:
    """Moments of one request, which arrives now.

    Attributes:
        arrival_unix_s: When it came, in seconds of Unix time.
    """

    def __init__(self, token_gap: Histogram) -> None:
        """`token_gap` takes the seconds between tokens."""
        self.arrival_unix_s = time.time()
        self._arrival_s = time.monotonic()
        self._token_gap = token_gap
        self._scheduled_s: float | None = None
        self._first_token_s: float | None = None
        self._last_token_s = 0.0
        self._num_tokens = 0

    @property
    def scheduled_s(self) -> float | None:
        """Seconds from arrival until its work began."""
        return self._since_arrival(self._scheduled_s)

    @property
    def first_token_s(self) -> float | None:
        """Seconds from arrival to the first token."""
        return self._since_arrival(self._first_token_s)

    @property
    def elapsed_s(self) -> float:
        """Seconds from arrival to now."""
        return time.monotonic() - self._arrival_s

    def note_start(self, moment_s: float) -> None:
        """Its work began at this moment of the monotonic clock."""
        self._scheduled_s = moment_s

    def note_tokens(self, num_tokens: int) -> None:
        """It has so many tokens by now; several that came together share the gap evenly."""
        num_new = num_tokens - self._num_tokens
        if num_new == 0:
            return
        now_s = time.monotonic()
        if self._first_token_s is None:
            self._first_token_s = self._last_token_s = now_s
            num_new -= 1
        if num_new:
            self._token_gap.observe((now_s - self._last_token_s) / num_new, num_new)
        self._last_token_s = now_s
        self._num_tokens = num_tokens

    def _since_arrival(self, moment_s: float | None) -> float | None:
        return None if moment_s is None else max(moment_s - self._arrival_s, 0.0)
