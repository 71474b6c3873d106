"""Threads that work out masks while a step runs. Knows nothing of grammars."""

from __future__ import annotations

import os
import threading
from queue import SimpleQueue
from typing import Final, Protocol

__all__ = ["MaskTeam", "MaskWork"]

_MOST_THREADS: Final = 16
_USUAL_THREADS: Final = 4


class MaskWork(Protocol):
    """One mask to work out."""

    def compute(self) -> None:
        """Work it out; raises nothing."""
        ...


class MaskTeam:
    """Daemon threads, started with the first work. The work itself leaves the GIL alone."""

    def __init__(self, num_threads: int | None = None) -> None:
        usual = min(os.cpu_count() or 1, _USUAL_THREADS)
        self._num_wanted = usual if num_threads is None else num_threads
        self._num_threads = 0
        self._queue: SimpleQueue[MaskWork | None] = SimpleQueue()
        self._lock = threading.Lock()

    def put(self, work: MaskWork) -> None:
        """Have work done, in the order of the calls."""
        if self._num_threads < self._num_wanted:
            self.grow()
        self._queue.put(work)

    def grow(self) -> None:
        """Start one more thread, when others may be stuck; up to a limit."""
        with self._lock:
            if self._num_threads >= _MOST_THREADS:
                return
            self._num_threads += 1
            name = f"pegainfer-masks-{self._num_threads}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def close(self) -> None:
        """Let the threads end, each after the work it has."""
        with self._lock:
            for _ in range(self._num_threads):
                self._queue.put(None)
            self._num_threads = _MOST_THREADS

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            work.compute()
            # Not while waiting: it would keep the answer's grammar alive.
            del work
