"""How fast something has been lately, in units a second. Knows not what the units are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_AGE_S = 60.0
"""An older measurement says nothing about now: what was slow then is tried again."""


class RateMeter:
    """A rate in which large and recent pieces of work weigh most.

    Small pieces are dominated by what each costs whatever its size, so they hardly count beside
    large ones.

    Args:
        window: Amount of work after which earlier work weighs 1/2.
        clock: Seconds of now.
    """

    def __init__(self, window: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._window = window
        self._clock = clock
        self._amount = 0.0
        self._seconds = 0.0
        self._last_s = 0.0

    def add(self, amount: float, seconds: float) -> None:
        """Take note of work that took so long."""
        now_s = self._clock()
        if now_s - self._last_s > MAX_AGE_S:
            self._amount = self._seconds = 0.0
        kept = 0.5 ** (amount / self._window)
        self._amount = kept * self._amount + amount
        self._seconds = kept * self._seconds + max(seconds, 1e-9)
        self._last_s = now_s

    @property
    def rate(self) -> float | None:
        """Units a second; None when nothing was measured lately."""
        if self._seconds == 0.0 or self._clock() - self._last_s > MAX_AGE_S:
            return None
        return self._amount / self._seconds

    def seconds_for(self, amount: float) -> float:
        """How long so much would take; 0 when the rate is unknown."""
        rate = self.rate
        return amount / rate if rate else 0.0
