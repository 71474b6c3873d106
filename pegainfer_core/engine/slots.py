"""Rows of a runner's per-request tables."""

from __future__ import annotations

import heapq


class SlotPool:
    """Hands out the lowest free row, so that few running requests stay in a dense front part."""

    def __init__(self, num_slots: int) -> None:
        self._free = list(range(num_slots))

    def __len__(self) -> int:
        """Free rows."""
        return len(self._free)

    def take(self) -> int:
        """A free row.

        Raises:
            IndexError: All rows are taken.
        """
        return heapq.heappop(self._free)

    def give_back(self, slot: int) -> None:
        """Free a row."""
        heapq.heappush(self._free, slot)
