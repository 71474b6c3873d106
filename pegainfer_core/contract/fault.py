"""What a step may fail with that no later step survives."""

from __future__ import annotations


class DeviceFault(RuntimeError):
    """The device or its context is lost: every request fails, and the engine ends."""
