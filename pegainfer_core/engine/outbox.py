"""The engine process's way out: frames leave on a writer thread, so a step never waits for it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING

from pegainfer_core.engine.wire import Report, merge_frames

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.contract import EngineMetrics, StepFrame
    from pegainfer_core.engine.wire import Channel

_REPORT_PERIOD_S = 0.25

logger = logging.getLogger(__name__)


class Outbox:
    """Queues frames and sends them in order; frames that piled up are merged per request.

    Metrics go with the frames, and without them through steps that have nothing to say, such as
    those of a long prefill.
    """

    def __init__(self, channel: Channel, metrics: Callable[[], EngineMetrics]) -> None:
        self._channel = channel
        self._metrics = metrics
        self._frames: deque[StepFrame] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._sent_metrics: EngineMetrics | None = None
        self._thread = threading.Thread(target=self._run, name="pegainfer-outbox", daemon=True)
        self._thread.start()

    def put(self, frame: StepFrame) -> None:
        """Queue a frame; never blocks."""
        self._frames.append(frame)
        self._wake.set()

    def close(self) -> None:
        """Send what is queued and stop the thread."""
        self._closing = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                self._wake.wait(_REPORT_PERIOD_S)
                self._wake.clear()
                self._flush()
                if self._closing and not self._frames:
                    return
        except OSError:
            return  # The server is gone; the reader thread ends the process.
        except Exception:
            # What cannot be sent is never answered: end both ends rather than look alive.
            logger.exception("sending to the server failed")
            self._channel.close()

    def _flush(self) -> None:
        frames: list[StepFrame] = []
        while self._frames:
            frames.append(self._frames.popleft())
        # Metrics go first: whoever has seen a request's last frame must find its pages freed.
        metrics = self._metrics()
        if metrics is not self._sent_metrics and metrics != self._sent_metrics:
            self._sent_metrics = metrics
            self._channel.send(Report(metrics))
        if frames:
            self._channel.send(merge_frames(frames))
