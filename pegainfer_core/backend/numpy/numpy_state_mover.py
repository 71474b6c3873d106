"""Copies recurrent states of the NumPy backend: plain copies, done when the call returns."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from pegainfer_core.backend.host_slab import map_slab
from pegainfer_core.backend.numpy.arrays import floats
from pegainfer_core.backend.numpy.numpy_page_mover import DoneCopy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.backend.page_mover import Fence, HostSlab
    from pegainfer_core.backend.state_pool import StatePool


class NumpyStateMover:
    """Implements `StateMover`; a slot's memory lies before what its convolution keeps.

    Args:
        states: The slots.
    """

    def __init__(self, states: StatePool) -> None:
        parts = [floats(part) for part in (states.memory, states.conv)]
        self._parts = parts  # keeps the memory
        self._places = [(part.ctypes.data, part[0].nbytes) for part in parts]
        self.slot_bytes = sum(size for _, size in self._places)

    def open(self) -> None:
        """There is no device."""

    def slab(self, num_bytes: int) -> HostSlab:
        """Memory that the system hands out as it is used."""
        return map_slab(num_bytes)

    def fence(self) -> Fence | None:
        """Steps are complete when they were launched."""
        return None

    def save(self, page_ids: Sequence[int], addresses: Sequence[int]) -> DoneCopy:
        """Copy now; other threads run meanwhile."""
        for slot, address in zip(page_ids, addresses, strict=True):
            for base, size in self._places:
                ctypes.memmove(address, base + slot * size, size)
                address += size
        return DoneCopy()

    def load(
        self, addresses: Sequence[int], page_ids: Sequence[int], after: Fence | None
    ) -> DoneCopy:
        """Copy now; other threads run meanwhile."""
        for address, slot in zip(addresses, page_ids, strict=True):
            for base, size in self._places:
                ctypes.memmove(base + slot * size, address, size)
                address += size
        return DoneCopy()

    def close(self) -> None:
        """Nothing is under way."""
