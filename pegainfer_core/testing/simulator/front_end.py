"""The way from clients to the engine and back: HTTP, JSON, sockets, in simulated time."""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pegainfer_core.testing.simulator.trace import Arrival


class FrontEndCost(msgspec.Struct, frozen=True, kw_only=True):
    """What the way costs.

    Attributes:
        request_s: From sending to the engine's inbox, for a request that finds nobody before it.
        response_s: From the end of an engine step to the client.
        serial_s: Of that, the time in which the front end takes in no other request.
    """

    request_s: float = 0.0
    response_s: float = 0.0
    serial_s: float = 0.0


class FrontEnd:
    """Requests on their way to the engine, in the order in which they are sent."""

    def __init__(self, cost: FrontEndCost) -> None:
        self._cost = cost
        self._to_send: list[tuple[float, int, Arrival]] = []
        self._on_the_way: deque[tuple[float, Arrival]] = deque()
        self._num_sent = 0
        self._free_s = 0.0

    def send(self, arrival: Arrival) -> None:
        """Let a client send a request at its time."""
        heapq.heappush(self._to_send, (arrival.at_s, self._num_sent, arrival))
        self._num_sent += 1

    def due(self, now_s: float) -> list[Arrival]:
        """The requests that have reached the engine since the last call."""
        while self._to_send and self._to_send[0][0] <= now_s:
            at_s, _, arrival = heapq.heappop(self._to_send)
            self._free_s = max(at_s, self._free_s) + self._cost.serial_s
            way_s = self._cost.request_s - self._cost.serial_s
            self._on_the_way.append((self._free_s + max(way_s, 0.0), arrival))
        arrived = []
        while self._on_the_way and self._on_the_way[0][0] <= now_s:
            arrived.append(self._on_the_way.popleft()[1])
        return arrived

    def next_s(self) -> float | None:
        """When to look again: something is sent or arrives then; None when all has arrived."""
        times = [self._to_send[0][0]] if self._to_send else []
        times += [self._on_the_way[0][0]] if self._on_the_way else []
        return min(times, default=None)
