"""What goes wrong on a device."""

from __future__ import annotations


class CudaError(RuntimeError):
    """The driver refused a call, or a kernel failed; the device may be unusable from then on."""
