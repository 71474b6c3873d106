"""Device memory of requests that come and go: kept for the next one, never freed under way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda.device import Device, DeviceMemory

_UNIT_BYTES: Final = 64 << 10


class TablePool:
    """Allocations in multiples of 64 KiB, reused by size: freeing one would stop the device.

    Bounded by what all requests that ran at once have needed.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._free: dict[int, list[DeviceMemory]] = {}

    def take(self, num_bytes: int) -> DeviceMemory:
        """Memory of at least this size, with any content."""
        size = -(-num_bytes // _UNIT_BYTES) * _UNIT_BYTES
        free = self._free.get(size)
        return free.pop() if free else self._device.allocate(size)

    def give(self, memory: DeviceMemory) -> None:
        """Let it be taken again, by work that is submitted later."""
        self._free.setdefault(memory.num_bytes, []).append(memory)
