"""What was chosen, on its way to the host: one copy a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pegainfer_core.backend.cuda.device import Event, PinnedMemory
from pegainfer_core.kernels import catalog

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.backend.cuda.device import Device

    IntArray = NDArray[np.int32]

_NUM_BUFFERS: Final = 3
"""Steps whose results may be unread at once, and one more."""


class ChoiceResults:
    """Ids and reports on the device, and pinned buffers in rotation.

    Attributes:
        chosen: Device address of [max_rows] int32.
        reports: Device address of [max_rows, REPORT_WORDS] int32.
    """

    def __init__(self, device: Device, max_rows: int) -> None:
        self._device = device
        self._max_rows = max_rows
        num_bytes = 4 * max_rows * (1 + catalog.REPORT_WORDS)
        self._memory = device.allocate(num_bytes)
        self.chosen = self._memory.address
        self.reports = self.chosen + 4 * max_rows
        self._buffers = [(PinnedMemory(num_bytes), Event()) for _ in range(_NUM_BUFFERS)]
        self._turn = 0
        self._scores: tuple[PinnedMemory, Event] | None = None

    def fetch(self, num_rows: int, *, reports: bool) -> FetchedChoice:
        """Start to copy the results of the work submitted so far."""
        self._turn = (self._turn + 1) % _NUM_BUFFERS
        memory, event = self._buffers[self._turn]
        count = self._max_rows + num_rows * catalog.REPORT_WORDS if reports else num_rows
        self._device.download(memory.address, self._memory.address, 4 * count)
        event.record(self._device)
        words = memory.array.view(np.int32)
        found = words[self._max_rows : count] if reports else words[:0]
        return FetchedChoice(event, words[:num_rows], found.reshape(-1, catalog.REPORT_WORDS))

    def read(self, source: int, num_words: int) -> IntArray:
        """Copies of words at a device address, at most those of `max_rows` reports; waits."""
        if self._scores is None:
            self._scores = PinnedMemory(4 * self._max_rows * catalog.REPORT_WORDS), Event()
        memory, event = self._scores
        self._device.download(memory.address, source, 4 * num_words)
        event.record(self._device)
        event.wait()
        return memory.array.view(np.int32)[:num_words].copy()


class FetchedChoice:
    """Results under way; read before the two steps behind them are fetched."""

    def __init__(self, event: Event, ids: IntArray, reports: IntArray) -> None:
        self._event = event
        self._ids = ids
        self._reports = reports

    def wait(self) -> tuple[IntArray, IntArray]:
        """[rows] ids and [rows or 0, REPORT_WORDS] reports, copies of both."""
        self._event.wait()
        return self._ids.copy(), self._reports.copy()
