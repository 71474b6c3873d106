"""One GPU, as seen by the thread that uses it: context, stream, memory, copies, recordings.

Uses CuPy's binding of the CUDA runtime alone: `import cupy` loads compilers and libraries that
nothing here needs, which costs half a second and 80 MB.
"""

from __future__ import annotations

import ctypes
import gc
import weakref
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from cupy_backends.cuda.api import runtime

from pegainfer_core.backend.cuda.errors import CudaError, DeviceMemoryError
from pegainfer_core.weights import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

_HOST_TO_DEVICE: Final = 1
_DEVICE_TO_HOST: Final = 2
_DEVICE_TO_DEVICE: Final = 3


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
    """Host memory that the device copies from and to without help; freed with its last reference.

    Attributes:
        address: Of the first byte.
        array: All of it, as bytes; lives no longer than this object.
    """

    def __init__(self, num_bytes: int) -> None:
        self.address = int(runtime.hostAlloc(num_bytes, runtime.hostAllocPortable))
        when_gone(self, runtime.freeHost, self.address)
        raw = (ctypes.c_uint8 * num_bytes).from_address(self.address)
        self.array: NDArray[np.uint8] = np.ctypeslib.as_array(raw)


class Event:
    """A point in the work of a stream."""

    def __init__(self, *, timing: bool = False) -> None:
        flags = runtime.eventDefault if timing else runtime.eventDisableTiming
        self._handle = int(runtime.eventCreateWithFlags(flags))
        when_gone(self, runtime.eventDestroy, self._handle)

    def record(self, device: Device) -> None:
        """Mark what the device's stream was given so far."""
        runtime.eventRecord(self._handle, device.stream)

    def wait(self) -> None:
        """Block until the device is there."""
        runtime.eventSynchronize(self._handle)

    def ms_since(self, earlier: Event) -> float:
        """Milliseconds between two events that were made with `timing`, both reached."""
        return float(runtime.eventElapsedTime(earlier._handle, self._handle))


class Recording:
    """Work of a stream that can be submitted again as a whole."""

    def __init__(self, graph: int) -> None:
        try:
            self._executable = int(runtime.graphInstantiate(graph))
        finally:
            runtime.graphDestroy(graph)
        when_gone(self, runtime.graphExecDestroy, self._executable)

    def replay(self, device: Device) -> None:
        """Submit it to the device's stream."""
        runtime.graphLaunch(self._executable, device.stream)


class _Allocation:
    """Device memory that is freed when nobody holds it any more."""

    def __init__(self, num_bytes: int) -> None:
        self.address = int(runtime.malloc(num_bytes))
        when_gone(self, runtime.free, self.address)


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
            count = int(runtime.getDeviceCount())
        except runtime.CUDARuntimeError as error:
            raise ConfigError(f"CUDA cannot be used: {error}") from error
        if ordinal >= count:
            raise ConfigError(f"--device {ordinal}: this machine has {count} GPU(s), from 0 on")
        self.ordinal = ordinal
        runtime.setDevice(ordinal)
        facts = runtime.getDeviceProperties(ordinal)
        self.name = facts["name"].decode()
        self.arch = 10 * int(facts["major"]) + int(facts["minor"])
        self.num_multiprocessors = int(facts["multiProcessorCount"])
        self.stream = int(runtime.streamCreateWithFlags(runtime.streamNonBlocking))
        when_gone(self, runtime.streamDestroy, self.stream)

    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""
        free, total = runtime.memGetInfo()
        return int(free), int(total)

    def allocate(self, num_bytes: int) -> DeviceMemory:
        """Uninitialised memory.

        Raises:
            DeviceMemoryError: There is not enough; the message names the numbers.
        """
        try:
            memory = _Allocation(max(num_bytes, 1))
        except runtime.CUDARuntimeError as error:
            free, total = self.memory()
            raise DeviceMemoryError(
                f"GPU {self.ordinal} ({self.name}): {num_bytes / 2**20:,.0f} MiB were asked for, "
                f"but only {free / 2**20:,.0f} of {total / 2**20:,.0f} MiB are free; end what else "
                "uses this GPU (nvidia-smi lists it), or lower --gpu-memory-utilization, "
                f"--num-kv-pages, --max-num-seqs or --max-prefill-tokens ({error})"
            ) from error
        return DeviceMemory(memory.address, num_bytes, memory)

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
        runtime.memsetAsync(target, value, num_bytes, self.stream)

    def synchronize(self) -> None:
        """Block until the stream is done.

        Raises:
            CudaError: A kernel failed.
        """
        try:
            runtime.streamSynchronize(self.stream)
        except runtime.CUDARuntimeError as error:
            raise CudaError(f"GPU {self.ordinal} ({self.name}) failed: {error}") from error

    def record(self, work: Callable[[], None]) -> Recording:
        """Record what `work` submits, without running it.

        Thread-local mode: an allocation during the recording is an error instead of memory that
        someone else is given later. So would be freeing: no garbage is collected meanwhile.
        """
        runtime.streamBeginCapture(self.stream, runtime.streamCaptureModeThreadLocal)
        try:
            with _no_collection():
                work()
        except BaseException:
            with suppress(runtime.CUDARuntimeError):  # what `work` raised says more
                runtime.graphDestroy(runtime.streamEndCapture(self.stream))
            raise
        return Recording(int(runtime.streamEndCapture(self.stream)))

    def _copy(self, target: int, source: int, num_bytes: int, kind: int) -> None:
        runtime.memcpyAsync(target, source, num_bytes, kind, self.stream)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Cycles that hold device memory, of an engine that ended say, stay for later."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def when_gone(owner: object, free: Callable[[int], object], handle: int) -> None:
    """Free a handle with its owner; not at the end of the process, when everything goes anyway."""
    weakref.finalize(owner, _free, free, handle).atexit = False


def _free(free: Callable[[int], object], handle: int) -> None:
    with suppress(runtime.CUDARuntimeError):  # the context is lost, and all its memory with it
        free(handle)


def host_address(array: NDArray[np.generic]) -> int:
    """Where an array's values lie."""
    return int(array.ctypes.data)


def pinned_view(memory: PinnedMemory, num_bytes: int) -> memoryview:
    """The first bytes of pinned memory, writable."""
    return memoryview((ctypes.c_char * num_bytes).from_address(memory.address)).cast("B")
