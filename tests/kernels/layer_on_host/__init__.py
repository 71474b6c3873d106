"""The kernel of a layer's products on the host, fiber by fiber."""

from __future__ import annotations

from tests.kernels.layer_on_host.library import run_layer

__all__ = ["run_layer"]
