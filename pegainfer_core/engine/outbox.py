"""The engine process's way out: a step never waits for it.

A frame leaves on the engine's own thread if the socket takes it at once, which is the rule: a
hand-over to another thread would wait until the next step is planned. The rest is a writer's.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING

from pegainfer_core.engine.wire import Report, merge_frames

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.contract import EngineMetrics, StepFrame
    from pegainfer_core.engine.wire import AdaptersChanged, Channel

_REPORT_PERIOD_S = 0.25

logger = logging.getLogger(__name__)


class Outbox:
    """Sends frames in order; frames that piled up are merged per request.

    Metrics go with the frames, and without them through steps that have nothing to say, such as
    those of a long prefill.
    """

    def __init__(self, channel: Channel, metrics: Callable[[], EngineMetrics]) -> None:
        self._channel = channel
        self._metrics = metrics
        self._frames: deque[StepFrame] = deque()
        self._answers: deque[AdaptersChanged] = deque()
        self._rest = b""
        self._sending = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._sent_metrics: EngineMetrics | None = None
        self._thread = threading.Thread(target=self._run, name="pegainfer-outbox", daemon=True)
        self._thread.start()

    def put(self, frame: StepFrame) -> None:
        """Send a frame, or queue it where that would block; never blocks."""
        self._frames.append(frame)
        if not self._send_at_once():
            self._wake.set()

    def answer(self, answer: AdaptersChanged) -> None:
        """Send what is no part of a step, soon; never blocks."""
        self._answers.append(answer)
        self._wake.set()

    def close(self) -> None:
        """Send what is queued and stop the thread."""
        self._closing = True
        self._wake.set()
        self._thread.join()

    def _send_at_once(self) -> bool:
        """Whether all was sent. What fails here fails again in the writer, which ends no step."""
        if not self._sending.acquire(blocking=False):
            return False
        try:
            self._encode()
            num_sent = self._channel.send_at_once(self._rest)
            self._rest = self._rest[num_sent:]
        except Exception:
            return False
        finally:
            self._sending.release()
        return not self._rest

    def _run(self) -> None:
        try:
            while True:
                self._wake.wait(_REPORT_PERIOD_S)
                self._wake.clear()
                self._flush()
                if self._closing and not (self._frames or self._answers or self._rest):
                    return
        except OSError:
            return  # The server is gone; the reader thread ends the process.
        except Exception:
            # What cannot be sent is never answered: end both ends rather than look alive.
            logger.exception("sending to the server failed")
            self._channel.close()

    def _flush(self) -> None:
        with self._sending:
            self._encode()
            rest, self._rest = self._rest, b""
            if rest:
                self._channel.send_bytes(rest)

    def _encode(self) -> None:
        """Add what is to be said to what is left to send; a frame is taken once it is encoded."""
        frames = list(self._frames)
        # Metrics go first: whoever has seen a request's last frame must find its pages freed.
        metrics = self._metrics()
        if metrics is not self._sent_metrics and metrics != self._sent_metrics:
            self._rest += self._channel.encode(Report(metrics))
            self._sent_metrics = metrics
        while self._answers:
            self._rest += self._channel.encode(self._answers.popleft())
        if frames:
            self._rest += self._channel.encode(merge_frames(frames))
            for _ in frames:
                self._frames.popleft()
