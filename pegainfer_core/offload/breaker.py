"""Cuts off what keeps failing, and tries it again after a while. Knows nothing of tiers."""

from __future__ import annotations

import enum
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class BreakerState(enum.StrEnum):
    """Whether calls pass."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """Opens after a run of failures; after a cool-down one call at a time may prove it well again.

    Not thread-safe: its user holds a lock.

    Attributes:
        num_opened: Times it opened so far.
    """

    def __init__(
        self,
        max_failures: int,
        cool_down_s: float,
        max_cool_down_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start closed.

        Args:
            max_failures: Failures in a row that open it.
            cool_down_s: How long it then stays open; doubled each time a probe fails.
            max_cool_down_s: The longest cool-down.
            clock: Seconds of now.
        """
        self.num_opened = 0
        self._max_failures = max_failures
        self._first_cool_down_s = cool_down_s
        self._max_cool_down_s = max_cool_down_s
        self._clock = clock
        self._cool_down_s = cool_down_s
        self._num_failures = 0
        self._open_until_s: float | None = None
        self._probing = False

    @property
    def state(self) -> BreakerState:
        """Whether calls pass now."""
        if self._open_until_s is None:
            return BreakerState.CLOSED
        if self._clock() < self._open_until_s:
            return BreakerState.OPEN
        return BreakerState.HALF_OPEN

    def admits(self) -> bool:
        """Whether a call that proves nothing, such as a look-up, may be made."""
        return self.state is not BreakerState.OPEN

    def begin(self) -> bool:
        """Whether a call may be made whose end is told with `succeed`, `fail` or `withdraw`.

        A half-open breaker admits one at a time.
        """
        state = self.state
        if state is BreakerState.CLOSED:
            return True
        if state is BreakerState.OPEN or self._probing:
            return False
        self._probing = True
        return True

    def succeed(self) -> None:
        """A call did what it should: forget earlier failures."""
        self._probing = False
        self._num_failures = 0
        self._open_until_s = None
        self._cool_down_s = self._first_cool_down_s

    def withdraw(self) -> None:
        """A call that was begun says nothing, because it was cancelled."""
        self._probing = False

    def fail(self, count: int = 1) -> None:
        """Calls failed; late ones of an open breaker change nothing."""
        state = self.state
        self._probing = False
        self._num_failures += count
        if state is BreakerState.HALF_OPEN:
            self._cool_down_s = min(2 * self._cool_down_s, self._max_cool_down_s)
            self._open()
        elif state is BreakerState.CLOSED and self._num_failures >= self._max_failures:
            self._open()

    def _open(self) -> None:
        self.num_opened += 1
        self._open_until_s = self._clock() + self._cool_down_s
