"""Tells plugins about ended requests on a thread of its own, away from running streams."""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.plugin import RequestRecord

_MAX_WAITING = 4096

logger = logging.getLogger(__name__)


class Observers:
    """Calls a function for every record, in order. Records are dropped while it cannot keep up."""

    def __init__(self, call: Callable[[RequestRecord], None]) -> None:
        self._call = call
        self._records: queue.Queue[RequestRecord | None] = queue.Queue(_MAX_WAITING)
        self._num_dropped = 0
        self._thread = threading.Thread(target=self._run, name="pegainfer-observers", daemon=True)
        self._thread.start()

    def tell(self, record: RequestRecord) -> None:
        """Queue a record; never waits."""
        try:
            self._records.put_nowait(record)
        except queue.Full:
            self._num_dropped += 1
            if self._num_dropped == 1:
                logger.warning("plugins fall behind with request records; some are dropped")

    def close(self, timeout_s: float = 5.0) -> None:
        """Tell what is queued and stop."""
        try:
            self._records.put(None, timeout=timeout_s)
        except queue.Full:
            return
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (record := self._records.get()) is not None:
            self._call(record)
