"""Makes the backend that was chosen, on the calling thread."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pegainfer_core.backend.choice import cuda_extra, require_usable_gpu
from pegainfer_core.backend.numpy import NumpyBackend
from pegainfer_core.weights import ConfigError

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
    require_usable_gpu(options.device)
    try:
        from pegainfer_core.backend.cuda import CudaBackend
    except ImportError as error:
        raise ConfigError(
            f"the CUDA backend is installed but cannot be loaded: {error}; install it anew: "
            f"{sys.executable} -m pip install --force-reinstall 'pegainfer[{cuda_extra()}]'; "
            "pegainfer doctor tells more"
        ) from error
    try:
        return CudaBackend(options.device, record=options.cuda_graph)
    except ConfigError:
        raise
    except RuntimeError as error:
        # Of the runtime, the driver or a library: they have no common type.
        raise ConfigError(
            f"GPU {options.device} cannot be used: {error}; nvidia-smi shows who else uses it, "
            "pegainfer doctor what is wrong"
        ) from error
