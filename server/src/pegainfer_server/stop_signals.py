"""SIGTERM and SIGINT as events: the first asks to stop, the second to hurry, the third kills."""

from __future__ import annotations

import asyncio
import signal

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """What people and supervisors want of this process.

    Attributes:
        stop: Set by the first signal.
        hurry: Set by the second.
    """

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()

    def catch(self) -> None:
        """Start to listen; the running loop's main thread only."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._take)

    def _take(self) -> None:
        if not self.stop.is_set():
            self.stop.set()
            return
        self.hurry.set()
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
