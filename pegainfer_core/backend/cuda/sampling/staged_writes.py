"""Small copies to the device that neither wait for it nor hold on to their source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pegainfer_core.backend.cuda.device import Event, PinnedMemory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.backend.cuda.device import Device

_NUM_BUFFERS: Final = 4
_BUFFER_BYTES: Final = 128 << 10


class StagedWrites:
    """Copies through pinned buffers in rotation, made when first needed."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._buffers: list[tuple[PinnedMemory, Event]] = []
        self._turn = 0

    def write(self, address: int, values: NDArray[np.int32]) -> None:
        """Copy values, in stream order; they may change after the call."""
        raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        for begin in range(0, raw.size, _BUFFER_BYTES):
            part = raw[begin : begin + _BUFFER_BYTES]
            memory, event = self._next()
            memory.array[: part.size] = part
            self._device.upload(address + begin, memory.address, part.size)
            event.record(self._device)

    def _next(self) -> tuple[PinnedMemory, Event]:
        if len(self._buffers) < _NUM_BUFFERS:
            self._buffers.append((PinnedMemory(_BUFFER_BYTES), Event()))
            return self._buffers[-1]
        self._turn = (self._turn + 1) % _NUM_BUFFERS
        memory, event = self._buffers[self._turn]
        event.wait()
        return memory, event
