"""What goes wrong on a device."""

from __future__ import annotations

from pegainfer_core.weights.errors import ConfigError


class CudaError(RuntimeError):
    """The driver refused a call, or a kernel failed; the device may be unusable from then on."""


class DeviceMemoryError(CudaError, ConfigError):
    """The device has too little free memory; it stays usable, and options or other users decide."""
