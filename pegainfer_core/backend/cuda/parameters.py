"""Parameters on their way to the device: file bytes through pinned buffers, or made there."""

from __future__ import annotations

import math
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from pegainfer_core.backend.cuda.arrays import address, dense, element, empty_tensor
from pegainfer_core.backend.cuda.device import Event, PinnedMemory, host_address, pinned_view
from pegainfer_core.kernels import catalog
from pegainfer_core.weights import DummyCheckpoint, round_floats

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pegainfer_core.backend.cuda.device import Device, DeviceMemory
    from pegainfer_core.backend.cuda.library import KernelLibrary
    from pegainfer_core.backend.dtype import DType
    from pegainfer_core.backend.tensor import Tensor
    from pegainfer_core.weights import FloatArray, ParameterLoader

_SLOT_BYTES: Final = 16 << 20
_NUM_SLOTS: Final = 6
"""Buffers in rotation, each filled by a thread of its own: reads and copies overlap."""


class ParameterReader:
    """Fills device tensors with parameters; `close` when all are asked for.

    Args:
        device: Where they go.
        library: For the kernel that makes seeded values.
    """

    def __init__(self, device: Device, library: KernelLibrary) -> None:
        self._device = device
        self._library = library
        self._staging: StagedCopies | None = None
        self._tables: dict[tuple[int, DType], DeviceMemory] = {}

    def load(self, loader: ParameterLoader, names: Sequence[str], dtype: DType) -> Tensor:
        """Tensors stacked along their first axis.

        The copies may still be under way; `close` waits for them.
        """
        shapes = [loader.shape(name) for name in names]
        tensor = empty_tensor(
            self._device, (sum(shape[0] for shape in shapes), *shapes[0][1:]), dtype
        )
        target = address(tensor)
        for name, shape in zip(names, shapes, strict=True):
            self._load_one(loader, name, target, math.prod(shape), dtype)
            target += math.prod(shape) * dtype.itemsize
        return tensor

    def close(self) -> None:
        """Wait until everything is on the device."""
        if self._staging is not None:
            self._staging.close()
        self._device.synchronize()
        self._tables.clear()

    def _load_one(
        self, loader: ParameterLoader, name: str, target: int, num_values: int, dtype: DType
    ) -> None:
        source, stored = loader.locate(name)
        if isinstance(source, DummyCheckpoint):
            table, key = source.quantiles(stored)
            self._fill(target, table, key, num_values, dtype)
            loader.count(name)
            return
        place = source.stored_bytes(stored)
        if place is not None and source.dtype(stored) == dtype.value:
            if self._staging is None:
                self._staging = StagedCopies(self._device)
            self._staging.copy_file(place.path, place.begin, place.end, target)
            loader.count(name)
            return
        held = dense(loader.read(name), dtype)
        self._device.upload(target, host_address(held), held.nbytes)
        self._device.synchronize()

    def _fill(
        self, target: int, table: FloatArray, key: int, num_values: int, dtype: DType
    ) -> None:
        known = (id(table), dtype)
        if known not in self._tables:
            rounded = table.copy()
            round_floats(rounded, dtype.value)
            held = dense(rounded, dtype)
            memory = self._device.allocate(held.nbytes)
            self._device.upload(memory.address, host_address(held), held.nbytes)
            self._device.synchronize()
            self._tables[known] = memory
        kernel = self._library.get(catalog.fill_quantiles(element(dtype)))
        a_program = 16 * catalog.SEEDED_BLOCK
        grid = (-(-num_values // a_program), 1)
        table_at = self._tables[known].address
        kernel.launch(self._device.stream, grid, target, table_at, key, num_values)


class StagedCopies:
    """Copies ranges of files to the device through pinned buffers in rotation."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._slots = [_Slot() for _ in range(_NUM_SLOTS)]
        self._pool = ThreadPoolExecutor(_NUM_SLOTS, "weights")
        self._files: dict[Path, int] = {}
        self._turn = 0

    def copy_file(self, path: Path, begin: int, end: int, target: int) -> None:
        """Copy bytes [begin, end) of a file to a device address; returns before it is done."""
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = os.open(path, os.O_RDONLY)
        for start in range(begin, end, _SLOT_BYTES):
            size = min(end - start, _SLOT_BYTES)
            slot = self._slots[self._turn]
            self._turn = (self._turn + 1) % _NUM_SLOTS
            slot.send(self._device)
            slot.copied.wait()
            slot.target, slot.num_bytes = target + start - begin, size
            slot.reading = self._pool.submit(_read, file, slot.memory, start, size, path)

    def close(self) -> None:
        """Wait for everything; the buffers can go after."""
        for _ in self._slots:
            self._slots[self._turn].send(self._device)
            self._turn = (self._turn + 1) % _NUM_SLOTS
        self._device.synchronize()
        self._pool.shutdown()
        for file in self._files.values():
            os.close(file)
        self._files.clear()


class _Slot:
    def __init__(self) -> None:
        self.memory = PinnedMemory(_SLOT_BYTES)
        self.copied = Event()
        self.reading: Future[None] | None = None
        self.target = 0
        self.num_bytes = 0

    def send(self, device: Device) -> None:
        """Submit the copy of what was read, if anything was."""
        if self.reading is None:
            return
        self.reading.result()
        self.reading = None
        device.upload(self.target, self.memory.address, self.num_bytes)
        self.copied.record(device)


def _read(file: int, memory: PinnedMemory, start: int, size: int, path: Path) -> None:
    view = pinned_view(memory, size)
    done = 0
    while done < size:
        got = os.preadv(file, [view[done:]], start + done)
        if got == 0:
            raise OSError(f"{path}: ended early, at byte {start + done}")
        done += got
