"""Makes the backend that was chosen, on the calling thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.backend.numpy import NumpyBackend

if TYPE_CHECKING:
    from pegainfer_core.backend.base import Backend
    from pegainfer_core.contract import CoreOptions


def make_backend(name: str, options: CoreOptions, threads: int | None = None) -> Backend:
    """A backend that belongs to this thread.

    Args:
        name: The plan's backend, "numpy" or "cuda".
        options: Device and recording of steps.
        threads: Compute threads of a CPU backend; None leaves the library's number.

    Raises:
        ConfigError: The device cannot be used, or the threads cannot be set.
    """
    if name == "numpy":
        return NumpyBackend(threads)
    from pegainfer_core.backend.cuda import CudaBackend

    return CudaBackend(options.device, record=options.cuda_graph)
