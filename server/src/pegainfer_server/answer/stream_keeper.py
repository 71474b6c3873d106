"""Looks after open streams from the outside, so that sending a token needs no timer."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

_TICK_S = 0.5


class Kept(Protocol):
    """A stream that wants to be looked after."""

    def tick(self, ticks_per_ping: int) -> None:
        """Half a second has gone by."""
        ...


class StreamKeeper:
    """Ticks every open stream.

    Attributes:
        ping_interval_s: Silence after which a stream writes a comment.
    """

    def __init__(self, ping_interval_s: float) -> None:
        self.ping_interval_s = ping_interval_s
        self._streams: set[Kept] = set()

    @contextlib.contextmanager
    def keeping(self, stream: Kept) -> Iterator[None]:
        """Look after a stream meanwhile."""
        self._streams.add(stream)
        try:
            yield
        finally:
            self._streams.discard(stream)

    async def run(self) -> None:
        """Tick until cancelled."""
        ticks_per_ping = max(round(self.ping_interval_s / _TICK_S), 1)
        while True:
            await asyncio.sleep(_TICK_S)
            for stream in list(self._streams):
                stream.tick(ticks_per_ping)
