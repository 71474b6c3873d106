"""Signs of life that cross processes without a message: two words of shared memory.

A message-based heartbeat would die with the socket or the GIL it is supposed to watch.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import time

from pegainfer_core.contract import EngineHealth, HealthState

_MIN_SILENCE_S = 5.0
_MAX_SILENCE_S = 60.0
_STEP_FACTOR = 10.0


class Heartbeat:
    """Time of the last beat and the longest step so far, on the system-wide monotonic clock.

    Attributes:
        fd: Descriptor to hand to a child process, which opens it with `Heartbeat(fd)`.
    """

    def __init__(self, fd: int | None = None) -> None:
        if fd is None:
            with tempfile.TemporaryFile(prefix="pegainfer-heartbeat-") as file:
                file.truncate(mmap.PAGESIZE)
                fd = os.dup(file.fileno())
        self.fd = fd
        self._map = mmap.mmap(fd, mmap.PAGESIZE)
        # 8-byte aligned stores are single instructions, so readers never see half a value.
        self._words = memoryview(self._map).cast("Q")

    def beat(self) -> None:
        """Say that the engine loop is alive."""
        self._words[0] = time.monotonic_ns()

    def end_step(self, started_ns: int) -> None:
        """Beat, and remember how long the step begun at `started_ns` took."""
        now = time.monotonic_ns()
        self._words[0] = now
        self._words[1] = max(self._words[1], now - started_ns)

    @property
    def silence_s(self) -> float:
        """Seconds since the last beat; 0 before the first."""
        last = self._words[0]
        return max(0.0, (time.monotonic_ns() - last) / 1e9) if last else 0.0

    @property
    def allowed_silence_s(self) -> float:
        """Longest silence of a healthy engine: 10 steps, at least 5 s, at most 60 s."""
        longest_s = self._words[1] / 1e9
        return min(_MAX_SILENCE_S, max(_MIN_SILENCE_S, _STEP_FACTOR * longest_s))

    @property
    def stalled(self) -> bool:
        """Whether the engine has been silent for longer than a healthy one would be."""
        return self.silence_s > self.allowed_silence_s

    def health(self) -> EngineHealth:
        """Stalled, or ready: of an engine that nobody knows to have ended."""
        if self.stalled:
            return EngineHealth(HealthState.STALLED, f"no sign of life for {self.silence_s:.1f} s")
        return EngineHealth(HealthState.READY)

    def close(self) -> None:
        """Unmap; the object is useless afterwards."""
        self._words.release()
        self._map.close()
        os.close(self.fd)
