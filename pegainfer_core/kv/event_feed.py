"""Carries KV events from the engine thread to a sink, on a thread of its own.

The engine never waits for it: what comes while the queue is full is dropped. Every batch takes a
number, those dropped too, so that whoever reads the feed sees a gap.
"""

from __future__ import annotations

import logging
import threading
import time
from queue import Full, Queue
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from pegainfer_core.kv.event_log import KvEvent

MAX_QUEUED_BATCHES = 10_000
_CLOSING_S = 5.0

logger = logging.getLogger(__name__)


class KvEventSink(Protocol):
    """Where events leave the process; called on the feed's thread only."""

    def send(self, seq: int, ts: float, events: list[KvEvent]) -> None:
        """Deliver a batch.

        Args:
            seq: Its number, one above that of the batch before it.
            ts: When it was noted, seconds since 1970.
            events: What happened, in order.
        """
        ...

    def close(self) -> None:
        """Release everything."""
        ...


class _Batch(NamedTuple):
    seq: int
    ts: float
    events: list[KvEvent]


class KvEventFeed:
    """Implements `KvEventCarrier`.

    Attributes:
        num_dropped: Batches that were not delivered, because the queue was full or the sink failed.
    """

    def __init__(self, sink: KvEventSink, max_queued: int = MAX_QUEUED_BATCHES) -> None:
        """Start the thread.

        Args:
            sink: Where events go; closed with the feed.
            max_queued: Most batches to hold for a slow sink.
        """
        self.num_dropped = 0
        self._sink = sink
        self._queue: Queue[_Batch | None] = Queue(max_queued)
        self._next_seq = 0
        self._thread = threading.Thread(target=self._run, name="pegainfer-kv-events", daemon=True)
        self._thread.start()

    def carry(self, events: list[KvEvent]) -> None:
        """Queue a batch, or drop it."""
        batch = _Batch(self._next_seq, time.time(), events)
        self._next_seq += 1
        try:
            self._queue.put_nowait(batch)
        except Full:
            self._drop("its queue is full")

    def close(self) -> None:
        """Deliver what is queued, for at most a few seconds."""
        try:
            self._queue.put(None, timeout=_CLOSING_S)
        except Full:
            logger.warning("the feed of KV events is stuck and was left behind")
            return
        self._thread.join(_CLOSING_S)

    def _run(self) -> None:
        while (batch := self._queue.get()) is not None:
            try:
                self._sink.send(*batch)
            except Exception as error:
                self._drop(f"{type(error).__name__}: {error}")
        self._sink.close()

    def _drop(self, reason: str) -> None:
        self.num_dropped += 1
        if self.num_dropped == 1:
            logger.warning("KV events are being dropped: %s", reason)
