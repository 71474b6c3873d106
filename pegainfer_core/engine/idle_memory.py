"""Gives freed memory back to the system once a process has had nothing to do for a while.

glibc keeps what a burst of requests freed, in one arena a thread, for the next burst. Knows only a
count of work done, not what the work was.
"""

from __future__ import annotations

import ctypes
import sys
import time

IDLE_S = 1.0


def give_back_freed_memory() -> None:
    """Return freed memory to the system; milliseconds of work. Only glibc offers it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(ctypes.c_size_t(0))


class IdleMemory:
    """Gives memory back once in every idle period, and costs a comparison otherwise."""

    def __init__(self) -> None:
        self._num_done = -1
        self._idle_since_s = 0.0
        self._given_back = False

    def look(self, num_done: int) -> None:
        """Give memory back if nothing was done for `IDLE_S`; to be called while idle.

        Args:
            num_done: Work done so far, in any unit that grows with it.
        """
        if num_done != self._num_done:
            self._num_done = num_done
            self._idle_since_s = time.monotonic()
            self._given_back = False
        elif not self._given_back and time.monotonic() - self._idle_since_s >= IDLE_S:
            self._given_back = True
            give_back_freed_memory()
