"""Copies KV pages and states between a GPU and pinned host memory, on streams beside the steps'."""

from __future__ import annotations

import math
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
    from pegainfer_core.backend.state_pool import StatePool
    from pegainfer_core.backend.tensor import Tensor


class _Mover:
    """Copies what lies at equal distances in a few tensors, part behind part in host memory."""

    def __init__(self, device: Device, parts: Sequence[Tensor], *, batches: bool = True) -> None:
        self._device = device
        self._parts = parts  # keeps the memory
        self._places = [(address(part), _item_bytes(part)) for part in parts]
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
        landed, offset = None, 0
        for base, size in self._places:
            sources = [base + page_id * size for page_id in page_ids]
            landed = self._saves.copy([at + offset for at in addresses], sources, size)
            offset += size
        return _last(landed)

    def load(
        self, addresses: Sequence[int], page_ids: Sequence[int], after: Fence | None
    ) -> StreamEvent:
        """Copy from pinned memory, after the steps of the fence."""
        if after is not None:
            self._loads.wait_for(cast("StreamEvent", after))
        landed, offset = None, 0
        for base, size in self._places:
            targets = [base + page_id * size for page_id in page_ids]
            landed = self._loads.copy(targets, [at + offset for at in addresses], size)
            offset += size
        return _last(landed)

    def close(self) -> None:
        """Wait for both streams, then unpin; the memory goes when nobody views it any more."""
        with self._lock:
            self._is_closed = True
        for stream in (self._saves, self._loads):
            stream.synchronize()
        while self._slabs:
            runtime.hostUnregister(self._slabs.pop().address)


class CudaPageMover(_Mover):
    """Implements `PageMover`.

    Args:
        device: Runs the steps.
        kv: The pool.
        batches: Whether the driver is given many copies in one call, where it can take them.
    """

    def __init__(self, device: Device, kv: KvPool, *, batches: bool = True) -> None:
        super().__init__(device, [kv.pages], batches=batches)


class CudaStateMover(_Mover):
    """Implements `StateMover`; a slot's memory lies before what its convolution keeps.

    Args:
        device: Runs the steps.
        states: The slots.
    """

    def __init__(self, device: Device, states: StatePool) -> None:
        super().__init__(device, [states.memory, states.conv])
        self.slot_bytes = sum(size for _, size in self._places)


def _item_bytes(part: Tensor) -> int:
    return math.prod(part.shape[1:]) * part.dtype.itemsize


def _last(landed: StreamEvent | None) -> StreamEvent:
    """Copies of one stream land in order."""
    if landed is None:
        raise ValueError("there is nothing to copy")
    return landed
