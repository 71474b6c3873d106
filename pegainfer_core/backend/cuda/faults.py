"""Tells what an error of CUDA means for those who come after: nothing, no memory, or the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pegainfer_core.backend.cuda.driver import error_name, library
from pegainfer_core.backend.cuda.errors import DeviceMemoryError
from pegainfer_core.contract import DeviceFault

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda.device import Device

_OUT_OF_MEMORY: Final = 2
"""The same number in the driver and in the runtime."""


def gpu_label(device: Device) -> str:
    """Names a device in messages."""
    return f"GPU {device.ordinal} ({device.name})"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a call failed for lack of memory, in the driver or in the runtime."""
    return isinstance(error, DeviceMemoryError) or getattr(error, "status", 0) == _OUT_OF_MEMORY


def raise_if_lost(device: Device) -> None:
    """Ask whether the context still works. An error that ends it is told by every later call.

    Raises:
        DeviceFault: It does not: a kernel trapped or used a bad address, or the hardware failed.
    """
    status = library().cuCtxSynchronize()
    if status:
        raise DeviceFault(
            f"{gpu_label(device)} cannot be used any more: {error_name(status)} ({status}); the "
            "engine must be started anew"
        )
