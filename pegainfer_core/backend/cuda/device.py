"""One GPU, as seen by the thread that uses it: context, stream, memory, copies, recordings."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import cupy
import numpy as np

from pegainfer_core.backend.cuda.errors import CudaError
from pegainfer_core.weights import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_HOST_TO_DEVICE: Final = 1
_DEVICE_TO_HOST: Final = 2
_DEVICE_TO_DEVICE: Final = 3
_NO_TIMING: Final = True


@dataclass(frozen=True, slots=True, eq=False)
class DeviceMemory:
    """An allocation; freed with its last reference.

    Attributes:
        address: Of the first byte, aligned to 256.
        num_bytes: Its size.
        owner: Keeps the memory.
    """

    address: int
    num_bytes: int
    owner: object


class PinnedMemory:
    """Host memory that the device copies from and to without help.

    Attributes:
        address: Of the first byte.
        array: All of it, as bytes.
    """

    def __init__(self, num_bytes: int) -> None:
        memory = cupy.cuda.PinnedMemory(num_bytes)
        self._owner = cupy.cuda.PinnedMemoryPointer(memory, 0)
        self.address = int(self._owner.ptr)
        self.array: NDArray[np.uint8] = np.frombuffer(self._owner, np.uint8, num_bytes)


class Event:
    """A point in the work of a stream."""

    def __init__(self, *, timing: bool = False) -> None:
        self._event = cupy.cuda.Event(disable_timing=not timing)

    def record(self, device: Device) -> None:
        """Mark what the device's stream was given so far."""
        self._event.record(device.cupy_stream)

    def wait(self) -> None:
        """Block until the device is there."""
        self._event.synchronize()

    def ms_since(self, earlier: Event) -> float:
        """Milliseconds between two events that were made with `timing`, both reached."""
        return float(cupy.cuda.get_elapsed_time(earlier._event, self._event))


class Recording:
    """Work of a stream that can be submitted again as a whole."""

    def __init__(self, graph: object) -> None:
        self._graph = graph

    def replay(self, device: Device) -> None:
        """Submit it to the device's stream."""
        self._graph.launch(device.cupy_stream)  # type: ignore[attr-defined]


class Device:
    """A GPU in use by the current thread; makes its context.

    Args:
        ordinal: Which one.

    Attributes:
        ordinal: Which one.
        name: Product name.
        arch: Compute capability, such as 90.
        num_multiprocessors: Multiprocessors.
        stream: Handle of the stream everything runs on.

    Raises:
        ConfigError: There is no such GPU.
    """

    def __init__(self, ordinal: int = 0) -> None:
        try:
            count = int(cupy.cuda.runtime.getDeviceCount())
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise ConfigError(f"CUDA cannot be used: {error}") from error
        if ordinal >= count:
            raise ConfigError(f"--device {ordinal}: this machine has {count} GPU(s), from 0 on")
        self.ordinal = ordinal
        cupy.cuda.Device(ordinal).use()
        facts = cupy.cuda.runtime.getDeviceProperties(ordinal)
        self.name = facts["name"].decode()
        self.arch = 10 * int(facts["major"]) + int(facts["minor"])
        self.num_multiprocessors = int(facts["multiProcessorCount"])
        self.cupy_stream = cupy.cuda.Stream(non_blocking=True)
        self.stream = int(self.cupy_stream.ptr)

    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""
        free, total = cupy.cuda.runtime.memGetInfo()
        return int(free), int(total)

    def allocate(self, num_bytes: int) -> DeviceMemory:
        """Uninitialised memory.

        Raises:
            ConfigError: There is not enough; the message names the numbers.
        """
        try:
            memory = cupy.cuda.Memory(max(num_bytes, 1))
        except cupy.cuda.runtime.CUDARuntimeError as error:
            free, total = self.memory()
            raise ConfigError(
                f"GPU {self.ordinal} ({self.name}): {num_bytes / 2**20:,.0f} MiB were asked for, "
                f"{free / 2**20:,.0f} of {total / 2**20:,.0f} MiB are free ({error})"
            ) from error
        return DeviceMemory(int(memory.ptr), num_bytes, memory)

    def upload(self, target: int, source: int, num_bytes: int) -> None:
        """Copy from host memory, in stream order."""
        self._copy(target, source, num_bytes, _HOST_TO_DEVICE)

    def download(self, target: int, source: int, num_bytes: int) -> None:
        """Copy to host memory, in stream order."""
        self._copy(target, source, num_bytes, _DEVICE_TO_HOST)

    def copy(self, target: int, source: int, num_bytes: int) -> None:
        """Copy between device addresses, in stream order."""
        self._copy(target, source, num_bytes, _DEVICE_TO_DEVICE)

    def fill(self, target: int, value: int, num_bytes: int) -> None:
        """Set every byte, in stream order."""
        cupy.cuda.runtime.memsetAsync(target, value, num_bytes, self.stream)

    def synchronize(self) -> None:
        """Block until the stream is done.

        Raises:
            CudaError: A kernel failed.
        """
        try:
            self.cupy_stream.synchronize()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise CudaError(f"GPU {self.ordinal} ({self.name}) failed: {error}") from error

    def record(self, work: Callable[[], None]) -> Recording:
        """Record what `work` submits, without running it.

        Thread-local mode: an allocation during the recording is an error instead of memory that
        someone else is given later.
        """
        mode = cupy.cuda.runtime.streamCaptureModeThreadLocal
        self.cupy_stream.begin_capture(mode)
        try:
            work()
        finally:
            graph = self.cupy_stream.end_capture()
        return Recording(graph)

    def _copy(self, target: int, source: int, num_bytes: int, kind: int) -> None:
        cupy.cuda.runtime.memcpyAsync(target, source, num_bytes, kind, self.stream)


def host_address(array: NDArray[np.generic]) -> int:
    """Where an array's values lie."""
    return int(array.ctypes.data)


def pinned_view(memory: PinnedMemory, num_bytes: int) -> memoryview:
    """The first bytes of pinned memory, writable."""
    return memoryview((ctypes.c_char * num_bytes).from_address(memory.address)).cast("B")
