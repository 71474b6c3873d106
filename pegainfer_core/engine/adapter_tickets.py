"""Changes of adapters that a worker was asked for and has not answered yet."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from pegainfer_core.contract import AdapterInfo, EngineError

if TYPE_CHECKING:
    from pegainfer_core.engine.wire import AdaptersChanged


class AdapterTickets:
    """Pairs answers with who waits for them; thread safe.

    Args:
        loaded: Adapters at start.

    Attributes:
        loaded: Adapters after the newest answer, by name; replaced as a whole.
    """

    def __init__(self, loaded: list[AdapterInfo]) -> None:
        self.loaded = loaded
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[AdapterInfo]] = {}
        self._lock = threading.Lock()

    def issue(self) -> tuple[int, Future[AdapterInfo]]:
        """A new ticket, and what its answer will be put into."""
        future: Future[AdapterInfo] = Future()
        future.set_running_or_notify_cancel()  # whoever gives up waiting stops nothing
        with self._lock:
            ticket = next(self._numbers)
            self._waiting[ticket] = future
        return ticket, future

    def settle(self, answer: AdaptersChanged) -> None:
        """Hand an answer over."""
        self.loaded = answer.loaded
        future = self._take(answer.ticket)
        if future is not None and answer.info is not None:
            future.set_result(answer.info)
        elif future is not None:
            future.set_exception(answer.error())

    def fail(self, ticket: int, message: str) -> None:
        """No answer will come."""
        future = self._take(ticket)
        if future is not None:
            future.set_exception(EngineError(message))

    def fail_all(self, message: str) -> None:
        """The worker is gone."""
        with self._lock:
            tickets = list(self._waiting)
        for ticket in tickets:
            self.fail(ticket, message)

    def _take(self, ticket: int) -> Future[AdapterInfo] | None:
        with self._lock:
            return self._waiting.pop(ticket, None)
