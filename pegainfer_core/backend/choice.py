"""Which backend a machine can run. Light: asks the driver, makes no context."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from functools import cache
from typing import Literal

from pegainfer_core.weights.errors import ConfigError

BackendName = Literal["numpy", "cuda"]


def choose_backend(asked: Literal["auto", "numpy", "cuda"]) -> BackendName:
    """The backend to run on: CUDA by default where there is a GPU.

    Args:
        asked: The option `--backend`.

    Raises:
        ConfigError: CUDA was asked for and there is no GPU, or there is one and what drives it is
            not installed: falling back silently would be a hundred times slower.
    """
    if asked == "numpy":
        return "numpy"
    num_gpus, cuda_major = _driver()
    if not num_gpus:
        if asked == "cuda":
            raise ConfigError(
                "--backend cuda: no NVIDIA GPU was found (the driver's libcuda.so.1 is missing or "
                "lists no device); use --backend numpy, or install the driver"
            )
        return "numpy"
    missing = [name for name in ("cupy", "nvmath") if importlib.util.find_spec(name) is None]
    if missing:
        extra = "cuda13" if cuda_major >= 13 else "cuda12"
        raise ConfigError(
            f"this machine has a GPU, but {' and '.join(missing)} is not installed; install it: "
            f"{sys.executable} -m pip install 'pegainfer[{extra}]', or use --backend numpy"
        )
    return "cuda"


@cache
def _driver() -> tuple[int, int]:
    """Number of GPUs, and the newest major CUDA version that the driver supports."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0, 0
    count, version = ctypes.c_int(), ctypes.c_int()
    if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)):
        return 0, 0
    library.cuDriverGetVersion(ctypes.byref(version))
    return count.value, version.value // 1000
