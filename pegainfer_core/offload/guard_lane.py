"""One daemon thread that makes calls in order, for callers that must not wait for them.

Not an executor: those are joined when the interpreter ends, and a call here may never return.
"""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)


class GuardLane:
    """Runs what is posted, one at a time.

    Args:
        name: Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._waiting: set[str] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def post(self, job: Callable[[], None]) -> None:
        """Run a job after those posted before; never, once the lane is closed."""
        self._jobs.put(job)

    def post_once(self, name: str, job: Callable[[], None]) -> None:
        """Run a job, unless one of this name is waiting already."""

        def run() -> None:
            with self._lock:
                self._waiting.discard(name)
            job()

        with self._lock:
            if name in self._waiting:
                return
            self._waiting.add(name)
        self.post(run)

    def close(self, timeout_s: float) -> bool:
        """End behind the posted jobs; whether that happened in time."""
        self._jobs.put(None)
        return self.join(timeout_s)

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of a closed lane; whether it came in time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                logger.exception("a job of %s raised", self._thread.name)
