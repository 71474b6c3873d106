"""A tier in memory whose every answer a test can delay, withhold or falsify."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from pegainfer_core.kv import PageKey, TierRecord, TierStats


class ScriptedTier:
    """Does everything at once on the calling thread, unless told otherwise.

    Attributes:
        shelf: What it holds.
        script: By method: called instead of it, with its argument.
        calls: The methods called so far.
        open_calls: Futures that `hang` left open, with the call's argument.
    """

    def __init__(self) -> None:
        self.shelf: dict[PageKey, bytes] = {}
        self.script: dict[str, Callable[[Any], Any]] = {}
        self.calls: list[str] = []
        self.open_calls: list[tuple[Future[Any], Any]] = []
        self.closed = threading.Event()

    def contains(self, keys: Sequence[PageKey]) -> Future[list[bool]]:
        return self._call("contains", keys, lambda: [key in self.shelf for key in keys])

    def save(self, records: Sequence[TierRecord]) -> Future[list[bool]]:
        def save() -> list[bool]:
            self.shelf |= {record.key: bytes(record.buffer) for record in records}
            return [True] * len(records)

        return self._call("save", records, save)

    def load(self, records: Sequence[TierRecord]) -> Future[list[bool]]:
        return self._call("load", records, lambda: self.fill(records))

    def drop(self, keys: Sequence[PageKey]) -> Future[None]:
        def drop() -> None:
            for key in keys:
                self.shelf.pop(key, None)

        return self._call("drop", keys, drop)

    def stats(self) -> TierStats:
        if "stats" in self.script:
            self.script["stats"](None)
        return TierStats(num_records=len(self.shelf))

    def close(self) -> None:
        if "close" in self.script:
            self.script["close"](None)
        self.closed.set()

    def fill(self, records: Sequence[TierRecord]) -> list[bool]:
        for key, buffer in records:
            if key in self.shelf:
                buffer[:] = self.shelf[key]
        return [record.key in self.shelf for record in records]

    def hang(self, argument: Any) -> Future[Any]:
        """For `script`: answer never, or when the test says so."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        self.open_calls.append((future, argument))
        return future

    def wait_in_line(self, argument: Any) -> Future[Any]:
        """For `script`: a call that has not begun, and can be cancelled."""
        future: Future[Any] = Future()
        self.open_calls.append((future, argument))
        return future

    def _call(self, name: str, argument: Any, work: Callable[[], Any]) -> Future[Any]:
        self.calls.append(name)
        if name in self.script:
            return self.script[name](argument)  # type: ignore[no-any-return]
        return done(work())


def done(result: Any) -> Future[Any]:
    """A future that has ended."""
    future: Future[Any] = Future()
    future.set_result(result)
    return future


def failed(error: BaseException) -> Future[Any]:
    """A future that has failed."""
    future: Future[Any] = Future()
    future.set_exception(error)
    return future
