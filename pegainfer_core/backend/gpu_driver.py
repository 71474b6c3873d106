"""Asks the CUDA driver what is there, without CuPy. Makes no context, so it costs no GPU memory."""

from __future__ import annotations

import ctypes
from typing import Final, NamedTuple

_LIBRARY: Final = "libcuda.so.1"
_COMPUTE_MAJOR, _COMPUTE_MINOR = 75, 76
_NAME_BYTES = 256

_NO_GPU: Final = (34, 100)
"""CUDA_ERROR_STUB_LIBRARY of development images, CUDA_ERROR_NO_DEVICE."""

_MEANINGS: Final = {
    2: "out of memory",
    3: "the driver is not initialised",
    46: "a GPU is in use exclusively by another process, or unavailable",
    101: "invalid device",
    802: "the system is not ready: on NVSwitch machines the fabric manager must run",
    803: "libcuda and the loaded kernel module are of different versions: reboot, or mount the "
    "host's libcuda into the container",
    804: "this GPU does not support forward compatibility: use the host's own libcuda",
    999: "unknown: the device files may not be accessible, or the module needs a reload",
}


class Device(NamedTuple):
    """One GPU."""

    name: str
    total_bytes: int
    compute_capability: tuple[int, int]


class Driver(NamedTuple):
    """The CUDA driver; `version` is the newest CUDA it supports, such as (13, 0)."""

    version: tuple[int, int]
    devices: list[Device]


class DriverError(Exception):
    """A driver library is there and does not work."""


def find_driver() -> Driver | None:
    """What the driver says, or None when there is no driver, or one without GPUs.

    Raises:
        DriverError: It is there but answers with an error.
    """
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    if library.cuInit(0) in _NO_GPU:
        return None
    _check(library, "cuInit", 0)
    version, count = ctypes.c_int(), ctypes.c_int()
    _check(library, "cuDriverGetVersion", ctypes.byref(version))
    _check(library, "cuDeviceGetCount", ctypes.byref(count))
    devices = [_device(library, ordinal) for ordinal in range(count.value)]
    return Driver((version.value // 1000, version.value % 1000 // 10), devices)


def _device(library: ctypes.CDLL, ordinal: int) -> Device:
    handle, total = ctypes.c_int(), ctypes.c_size_t()
    name = ctypes.create_string_buffer(_NAME_BYTES)
    _check(library, "cuDeviceGet", ctypes.byref(handle), ordinal)
    _check(library, "cuDeviceGetName", name, _NAME_BYTES, handle)
    _check(library, "cuDeviceTotalMem_v2", ctypes.byref(total), handle)
    major, minor = ctypes.c_int(), ctypes.c_int()
    for value, attribute in ((major, _COMPUTE_MAJOR), (minor, _COMPUTE_MINOR)):
        _check(library, "cuDeviceGetAttribute", ctypes.byref(value), attribute, handle)
    return Device(name.value.decode(), total.value, (major.value, minor.value))


def _check(library: ctypes.CDLL, function: str, *arguments: object) -> None:
    status = getattr(library, function)(*arguments)
    if status != 0:
        meaning = _MEANINGS.get(status)
        told = f"{status} ({meaning})" if meaning else f"{status}"
        raise DriverError(f"{_LIBRARY}: {function} failed with CUDA error {told}")
