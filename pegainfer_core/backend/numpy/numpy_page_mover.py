"""Copies KV pages of the NumPy backend: plain copies, done when the call returns."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from pegainfer_core.backend.host_slab import map_slab
from pegainfer_core.backend.numpy.arrays import stored_pages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.backend.numpy.numpy_kv_pool import NumpyKvPool
    from pegainfer_core.backend.page_mover import Fence, HostSlab


class NumpyPageMover:
    """Implements `PageMover`.

    Args:
        kv: The pool.
    """

    def __init__(self, kv: NumpyKvPool) -> None:
        self._pages = stored_pages(kv)
        self._contexts = kv.contexts
        self._base = self._pages.ctypes.data
        self._page_bytes = kv.layout.page_bytes

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
        base, size = self._base, self._page_bytes
        for page_id, address in zip(page_ids, addresses, strict=True):
            ctypes.memmove(address, base + page_id * size, size)
        return DoneCopy()

    def load(
        self, addresses: Sequence[int], page_ids: Sequence[int], after: Fence | None
    ) -> DoneCopy:
        """Copy now; other threads run meanwhile."""
        base, size = self._base, self._page_bytes
        for address, page_id in zip(addresses, page_ids, strict=True):
            ctypes.memmove(base + page_id * size, address, size)
        self._contexts.mark_loaded(list(page_ids))
        return DoneCopy()

    def close(self) -> None:
        """Nothing is under way."""


class DoneCopy:
    """A `CopyTicket` of copies that have landed."""

    def done(self) -> bool:
        """At once."""
        return True
