"""A call of many records, done piece by piece on several threads. Knows no file."""

from __future__ import annotations

import threading
from concurrent.futures import Future


class Transfer:
    """Collects what became of each record, and ends the future with the last.

    Attributes:
        future: The call's; a bool for each record.
    """

    def __init__(self, count: int) -> None:
        """Start a call of so many records, at least one."""
        self.future: Future[list[bool]] = Future()
        self._found = [False] * count
        self._num_left = count
        self._error: Exception | None = None
        self._begun: bool | None = None
        self._lock = threading.Lock()

    def begin(self) -> bool:
        """Whether work may start, because nobody cancelled; the same answer for every piece."""
        with self._lock:
            if self._begun is None:
                self._begun = self.future.set_running_or_notify_cancel()
            return self._begun

    def settle(self, index: int, found: bool) -> None:
        """One record is done."""
        with self._lock:
            self._found[index] = found
            self._num_left -= 1
            last = self._num_left == 0
        if last and self.begin() and not self.future.done():
            if self._error is None:
                self.future.set_result(self._found)
            else:
                self.future.set_exception(self._error)

    def abort(self, error: Exception) -> None:
        """The call ends now, with an exception."""
        if self.begin() and not self.future.done():
            self.future.set_exception(error)

    def fail(self, error: Exception) -> None:
        """The call will end with an exception, once all its records are done."""
        self._error = error
