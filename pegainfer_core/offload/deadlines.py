"""A thread that calls back when time is up. Knows nothing of what is waited for."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)


class Deadline:
    """One moment that is waited for; `cancel` it when it has become pointless."""

    __slots__ = ("_expire",)

    def __init__(self, expire: Callable[[], None]) -> None:
        self._expire: Callable[[], None] | None = expire

    def cancel(self) -> None:
        """Forget the callback and all it refers to; it may be running already."""
        self._expire = None

    def expire(self) -> None:
        """Call back, unless cancelled."""
        expire, self._expire = self._expire, None
        if expire is not None:
            expire()


class Deadlines:
    """Calls back once for each deadline, on a thread of its own.

    Args:
        name: Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._heap: list[tuple[float, int, Deadline]] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def watch(self, delay_s: float, expire: Callable[[], None]) -> Deadline:
        """Have `expire` called after so many seconds; it must not block."""
        deadline = Deadline(expire)
        with self._changed:
            entry = (time.monotonic() + delay_s, next(self._order), deadline)
            heapq.heappush(self._heap, entry)
            if self._heap[0] is entry:
                self._changed.notify()
        return deadline

    def close(self) -> None:
        """End the thread; what is still waited for never expires."""
        with self._changed:
            self._closed = True
            self._heap.clear()
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while (deadline := self._next()) is not None:
            try:
                deadline.expire()
            except Exception:
                logger.exception("a deadline's callback raised")

    def _next(self) -> Deadline | None:
        with self._changed:
            while not self._closed:
                now_s = time.monotonic()
                if self._heap and self._heap[0][0] <= now_s:
                    return heapq.heappop(self._heap)[2]
                self._changed.wait(self._heap[0][0] - now_s if self._heap else None)
            return None
