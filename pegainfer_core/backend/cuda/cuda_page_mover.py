"""Copies KV pages between a GPU and pinned host memory, on streams beside the steps' own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

from cupy_backends.cuda.api import runtime

from pegainfer_core.backend.cuda.arrays import address
from pegainfer_core.backend.cuda.copy_stream import CopyStream, StreamEvent
from pegainfer_core.backend.host_slab import map_slab

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.backend.cuda.device import Device
    from pegainfer_core.backend.kv_pool import KvPool
    from pegainfer_core.backend.page_mover import Fence, HostSlab


class CudaPageMover:
    """Implements `PageMover`.

    Args:
        device: Runs the steps.
        kv: The pool.
        batches: Whether the driver is given many copies in one call, where it can take them.
    """

    def __init__(self, device: Device, kv: KvPool, *, batches: bool = True) -> None:
        self._device = device
        self._pages = kv.pages  # keeps the memory
        self._base = address(kv.pages)
        self._page_bytes = kv.layout.page_bytes
        self._saves = CopyStream(runtime.memcpyDeviceToHost, batches=batches)
        self._loads = CopyStream(runtime.memcpyHostToDevice, batches=batches)
        self._slabs: list[HostSlab] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def open(self) -> None:
        """Use the device's context in this thread."""
        runtime.setDevice(self._device.ordinal)

    def slab(self, num_bytes: int) -> HostSlab:
        """Pinned memory, which takes the system about 0.65 s a GiB."""
        self.open()
        slab = map_slab(num_bytes, populate=True)
        with self._lock:
            if self._is_closed:
                raise MemoryError("the page mover was closed")
            try:
                runtime.hostRegister(slab.address, num_bytes, runtime.hostAllocPortable)
            except runtime.CUDARuntimeError as error:
                raise MemoryError(
                    f"{num_bytes / 2**20:,.0f} MiB of host memory cannot be pinned: {error}; the "
                    "limit on locked memory (ulimit -l) may be too low"
                ) from error
            self._slabs.append(slab)
        return slab

    def fence(self) -> StreamEvent:
        """All steps launched so far."""
        return StreamEvent(self._device.stream)

    def save(self, page_ids: Sequence[int], addresses: Sequence[int]) -> StreamEvent:
        """Copy to pinned memory."""
        return self._saves.copy(addresses, self._addresses(page_ids), self._page_bytes)

    def load(
        self, addresses: Sequence[int], page_ids: Sequence[int], after: Fence | None
    ) -> StreamEvent:
        """Copy from pinned memory, after the steps of the fence."""
        if after is not None:
            self._loads.wait_for(cast("StreamEvent", after))
        return self._loads.copy(self._addresses(page_ids), addresses, self._page_bytes)

    def close(self) -> None:
        """Wait for both streams, then unpin; the memory goes when nobody views it any more."""
        with self._lock:
            self._is_closed = True
        for stream in (self._saves, self._loads):
            stream.synchronize()
        while self._slabs:
            runtime.hostUnregister(self._slabs.pop().address)

    def _addresses(self, page_ids: Sequence[int]) -> list[int]:
        base, size = self._base, self._page_bytes
        return [base + page_id * size for page_id in page_ids]
