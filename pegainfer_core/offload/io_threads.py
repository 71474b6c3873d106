"""A few daemon threads that run posted jobs. Knows nothing of files.

Not an executor: its threads are joined when the interpreter ends, and a read from a broken device
may never return.
"""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)


class IoThreads:
    """Runs jobs in the order of posting, several at a time.

    Args:
        count: Threads.
        name: Prefix of their names.
    """

    def __init__(self, count: int, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{i}", daemon=True)
            for i in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def post(self, job: Callable[[], None]) -> None:
        """Run a job soon; a job must not wait for another one. Never runs after `join`."""
        self._jobs.put(job)

    def join(self) -> None:
        """End the threads behind all posted jobs."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                logger.exception("a job of %s raised", threading.current_thread().name)
            del job  # It may refer to buffers.
