"""Copies under way in one direction, in order. Knows neither what is copied nor why."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from pegainfer_core.offload.rate_meter import RateMeter

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.backend import CopyTicket

logger = logging.getLogger(__name__)

_WINDOW_BYTES: Final = 512e6
_EARLY: Final = 0.8
_SHORTEST_WAIT_S: Final = 100e-6
_LONGEST_WAIT_S: Final = 2e-3


class _Flight(NamedTuple):
    ticket: CopyTicket
    num_bytes: int
    begun_s: float
    land: Callable[[bool], None]


class Copies:
    """Lands copies in the order in which they were begun.

    Attributes:
        meter: Bytes a second.
        num_bytes: Bytes of the copies that have landed.
        seconds: Time during which copies were under way.
        num_failed: Copies that did not land.
    """

    def __init__(self) -> None:
        self.meter = RateMeter(_WINDOW_BYTES)
        self.num_bytes = 0
        self.seconds = 0.0
        self.num_failed = 0
        self._flights: deque[_Flight] = deque()
        self._free_s = 0.0

    def __len__(self) -> int:
        """Copies under way."""
        return len(self._flights)

    def begin(self, ticket: CopyTicket, num_bytes: int, land: Callable[[bool], None]) -> None:
        """Watch a copy that was just begun.

        Args:
            ticket: The copy.
            num_bytes: Its size.
            land: Called once, with whether the bytes are where they should be.
        """
        self._flights.append(_Flight(ticket, num_bytes, time.monotonic(), land))

    def poll(self) -> None:
        """Land what is done."""
        while self._flights and self._settled(self._flights[0]):
            pass

    def patience_s(self) -> float | None:
        """How long to do something else before the next look; None when nothing is under way."""
        if not self._flights:
            return None
        flight = self._flights[0]
        # Too early costs a look; too late would also be measured, and believed the next time.
        expected_s = _EARLY * self.meter.seconds_for(flight.num_bytes)
        due_s = max(flight.begun_s, self._free_s) + expected_s
        return min(max(due_s - time.monotonic(), _SHORTEST_WAIT_S), _LONGEST_WAIT_S)

    def _settled(self, flight: _Flight) -> bool:
        try:
            if not flight.ticket.done():
                return False
        except RuntimeError:
            logger.exception("copying KV pages failed")
            self.num_failed += 1
            self._flights.popleft()
            flight.land(False)
            return True
        self._flights.popleft()
        now_s = time.monotonic()
        took_s = now_s - max(flight.begun_s, self._free_s)
        self._free_s = now_s
        self.num_bytes += flight.num_bytes
        self.seconds += took_s
        self.meter.add(flight.num_bytes, took_s)
        flight.land(True)
        return True
