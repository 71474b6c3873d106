"""The few functions of the CUDA driver that launching cubins needs, called directly.

CuPy's own launch costs 12 microseconds; this path packs arguments with one call and launches with
another. Works on whatever context is current in the calling thread.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Final

from pegainfer_core.backend.cuda.errors import CudaError, DeviceMemoryError

_LIBRARY: Final = "libcuda.so.1"
_MAX_DYNAMIC_SHARED: Final = 8
_PROGRAMMATIC_SERIALIZATION: Final = 6
_OUT_OF_MEMORY: Final = 2


class LaunchAttribute(ctypes.Structure):
    """`CUlaunchAttribute`, whose value is used as one int."""

    _fields_ = (
        ("id", ctypes.c_uint),
        ("pad", ctypes.c_char * 4),
        ("value", ctypes.c_int),
        ("rest", ctypes.c_char * 60),
    )


class LaunchConfig(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = (
        ("grid_x", ctypes.c_uint),
        ("grid_y", ctypes.c_uint),
        ("grid_z", ctypes.c_uint),
        ("block_x", ctypes.c_uint),
        ("block_y", ctypes.c_uint),
        ("block_z", ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("num_attributes", ctypes.c_uint),
    )


@cache
def library() -> ctypes.CDLL:
    """The driver.

    Raises:
        CudaError: There is none.
    """
    try:
        return ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise CudaError(f"no NVIDIA driver: {_LIBRARY} cannot be loaded ({error})") from error


def check(status: int, what: str) -> None:
    """Turn a driver status into an exception.

    Raises:
        CudaError: The status is not success; a `DeviceMemoryError` if memory ran out.
    """
    if status == 0:
        return
    kind = DeviceMemoryError if status == _OUT_OF_MEMORY else CudaError
    raise kind(f"{what} failed: {error_name(status)} ({status})")


def error_name(status: int) -> str:
    """What the driver calls a status, such as CUDA_ERROR_ILLEGAL_ADDRESS."""
    name = ctypes.c_char_p()
    library().cuGetErrorName(status, ctypes.byref(name))
    return (name.value or b"unknown error").decode()


def load_function(code: bytes, symbol: str, shared_bytes: int) -> tuple[int, int]:
    """Load a cubin and find a kernel in it.

    Returns:
        Module and function handle.

    Raises:
        CudaError: The driver cannot load it.
    """
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    lib = library()
    check(lib.cuModuleLoadData(ctypes.byref(module), code), f"loading {symbol}")
    status = lib.cuModuleGetFunction(ctypes.byref(function), module, symbol.encode())
    check(status, f"finding {symbol}")
    if shared_bytes > 48 << 10:
        status = lib.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, shared_bytes)
        check(status, f"giving {symbol} {shared_bytes} bytes of shared memory")
    if module.value is None or function.value is None:
        raise CudaError(f"loading {symbol} gave no handle")
    return module.value, function.value


def max_clusters(function: ctypes.c_void_p, config: LaunchConfig, size: int) -> int:
    """Clusters of a kernel that run at once.

    Args:
        function: The kernel, compiled for clusters of `size` blocks.
        config: How it is launched.
        size: Blocks of a cluster.

    Raises:
        CudaError: The driver refuses.
    """
    lib, found = library(), ctypes.c_int()
    one = LaunchConfig.from_buffer_copy(config)
    one.grid_x, one.grid_y = size, 1
    one.attributes, one.num_attributes = None, 0
    status = lib.cuOccupancyMaxActiveClusters(ctypes.byref(found), function, ctypes.byref(one))
    check(status, "counting clusters")
    return found.value


def serialization_attribute() -> LaunchAttribute:
    """Lets a kernel start while the one before it drains; it must wait for it by itself."""
    attribute = LaunchAttribute()
    attribute.id = _PROGRAMMATIC_SERIALIZATION
    attribute.value = 1
    return attribute
