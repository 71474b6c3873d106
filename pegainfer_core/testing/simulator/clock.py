"""The time of a simulation: moves only when somebody moves it."""

from __future__ import annotations


class SimulatedClock:
    """Seconds since the start of a simulation.

    Attributes:
        now_s: The time.
    """

    def __init__(self) -> None:
        self.now_s = 0.0

    def advance(self, duration_s: float) -> None:
        """Let time pass."""
        self.now_s += duration_s

    def advance_to(self, time_s: float) -> None:
        """Wait for a moment; does nothing when it has passed."""
        self.now_s = max(self.now_s, time_s)
