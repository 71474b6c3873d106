"""Copies KV pages and states of the NumPy backend: plain copies, done when the call returns."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from pegainfer_core.backend.host_slab import map_slab
from pegainfer_core.backend.numpy.arrays import floats, stored_pages

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pegainfer_core.backend.numpy.numpy_kv_pool import NumpyKvPool
    from pegainfer_core.backend.page_mover import Fence, HostSlab
    from pegainfer_core.backend.state_pool import StatePool


class _Mover:
    """Copies what lies at equal distances in a few arrays, part behind part."""

    def __init__(self, parts: Sequence[NDArray[np.generic]]) -> None:
        self._parts = parts  # keeps the memory
        self._places = [(part.ctypes.data, part[0].nbytes) for part in parts]

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
        for page_id, address in zip(page_ids, addresses, strict=True):
            for base, size in self._places:
                ctypes.memmove(address, base + page_id * size, size)
                address += size
        return DoneCopy()

    def load(
        self, addresses: Sequence[int], page_ids: Sequence[int], after: Fence | None
    ) -> DoneCopy:
        """Copy now; other threads run meanwhile."""
        for address, page_id in zip(addresses, page_ids, strict=True):
            for base, size in self._places:
                ctypes.memmove(base + page_id * size, address, size)
                address += size
        return DoneCopy()

    def close(self) -> None:
        """Nothing is under way."""


class NumpyPageMover(_Mover):
    """Implements `PageMover`.

    Args:
        kv: The pool.
    """

    def __init__(self, kv: NumpyKvPool) -> None:
        super().__init__([stored_pages(kv)])
        self._contexts = kv.contexts

    def load(
        self, addresses: Sequence[int], page_ids: Sequence[int], after: Fence | None
    ) -> DoneCopy:
        """Copy now; other threads run meanwhile."""
        ticket = super().load(addresses, page_ids, after)
        self._contexts.mark_loaded(list(page_ids))
        return ticket


class NumpyStateMover(_Mover):
    """Implements `StateMover`; a slot's memory lies before what its convolution keeps.

    Args:
        states: The slots.
    """

    def __init__(self, states: StatePool) -> None:
        super().__init__([floats(part) for part in (states.memory, states.conv)])
        self.slot_bytes = sum(size for _, size in self._places)


class DoneCopy:
    """A `CopyTicket` of copies that have landed."""

    def done(self) -> bool:
        """At once."""
        return True
