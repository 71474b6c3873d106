"""Which backend a machine can run. Light: asks the driver, makes no context."""

from __future__ import annotations

import importlib.util
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Final, Literal

from pegainfer_core.backend.gpu_driver import DriverError, find_driver
from pegainfer_core.weights.errors import ConfigError

if TYPE_CHECKING:
    from pegainfer_core.backend.gpu_driver import Driver

BackendName = Literal["numpy", "cuda"]

_CUDA_MAJORS: Final = (13, 12)
"""Those that an extra exists for, newest first."""

_OLDEST_DRIVERS: Final = {13: "580", 12: "525"}
OLDEST_CAPABILITY: Final = (8, 0)
"""Compute capability: bfloat16 on the tensor cores."""


def choose_backend(asked: Literal["auto", "numpy", "cuda"]) -> BackendName:
    """The backend to run on: CUDA by default where there is a GPU.

    Args:
        asked: The option `--backend`.

    Raises:
        ConfigError: CUDA was asked for and there is no GPU, or there is one and what drives it is
            broken, too old or not installed: falling back silently would be a hundred times slower.
    """
    if asked == "numpy":
        return "numpy"
    try:
        driver = find_driver()
    except DriverError as error:
        raise ConfigError(
            f"the NVIDIA driver does not work: {error}; repair it, or use --backend numpy"
        ) from error
    if driver is None or not driver.devices:
        if asked == "cuda":
            raise ConfigError(
                "--backend cuda: no NVIDIA GPU was found (the driver's libcuda.so.1 is missing or "
                "lists no device; CUDA_VISIBLE_DEVICES may hide them, and containers need the GPU "
                "passed in); use --backend numpy, or install the driver"
            )
        return "numpy"
    _require_packages(driver)
    return "cuda"


def require_usable_gpu(ordinal: int) -> None:
    """See that a GPU can run the kernels, before anything is loaded.

    Args:
        ordinal: The option `--device`.

    Raises:
        ConfigError: There is no such GPU, or it is too old.
    """
    try:
        driver = find_driver()
    except DriverError as error:
        raise ConfigError(f"the NVIDIA driver does not work: {error}") from error
    devices = driver.devices if driver else []
    if not 0 <= ordinal < len(devices):
        names = ", ".join(f"{i}: {device.name}" for i, device in enumerate(devices))
        raise ConfigError(
            f"--device {ordinal}: this machine has {len(devices)} GPU(s), from 0 on"
            + (f" ({names})" if names else "")
        )
    device = devices[ordinal]
    if device.compute_capability < OLDEST_CAPABILITY:
        major, minor = device.compute_capability
        raise ConfigError(
            f"GPU {ordinal} ({device.name}) has compute capability {major}.{minor}; kernels need "
            "8.0 or newer (Ampere), for bfloat16 on the tensor cores; use another --device or "
            "--backend numpy"
        )


def cuda_extra(driver: Driver | None = None) -> str:
    """The extra to install for a driver, such as `cuda13`."""
    major = driver.version[0] if driver else _CUDA_MAJORS[0]
    return "cuda13" if major >= _CUDA_MAJORS[0] else "cuda12"


def _require_packages(driver: Driver) -> None:
    extra = cuda_extra(driver)
    install = f"{sys.executable} -m pip install 'pegainfer[{extra}]'"
    if importlib.util.find_spec("cupy") is None:
        raise ConfigError(
            f"this machine has a GPU, but cupy is not installed; install it: {install}, or use "
            "--backend numpy"
        )
    built_for = _cupy_cuda_major()
    if built_for is not None and built_for > driver.version[0]:
        major, minor = driver.version
        raise ConfigError(
            f"the NVIDIA driver is too old: it supports CUDA {major}.{minor}, and the installed "
            f"cupy-cuda{built_for}x needs CUDA {built_for}; update the driver to "
            f"{_OLDEST_DRIVERS[built_for]} or newer, or run: {sys.executable} -m pip uninstall -y "
            f"cupy-cuda{built_for}x && {install}"
        )


def _cupy_cuda_major() -> int | None:
    """Major CUDA version that the installed CuPy was built for; None when nothing tells."""
    for major in _CUDA_MAJORS:
        try:
            metadata.distribution(f"cupy-cuda{major}x")
        except metadata.PackageNotFoundError:
            continue
        return major
    return None
