"""`pegainfer doctor`: what this machine and this environment have, and what is wrong with them.

Imports neither NumPy nor CuPy here: CuPy is tried in a process of its own, so that a broken one
can neither crash the report nor leave a GPU context behind.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import subprocess
import sys
from importlib import metadata
from typing import TYPE_CHECKING

from pegainfer_core import __version__
from pegainfer_core.backend.choice import OLDEST_CAPABILITY, cuda_extra
from pegainfer_core.backend.gpu_driver import Driver, DriverError, find_driver
from pegainfer_core.plugin.install_hint import install_command
from pegainfer_core.plugin.known import KNOWN_PACKAGES
from pegainfer_core.plugin.plugin_record import PluginState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pegainfer_core.plugin.host import PluginHost

_CUPY_TRIAL = "import cupy; cupy.zeros(1).sum().item(); print(cupy.__version__)"
_CUPY_TIMEOUT_S = 120
_BROKEN = (PluginState.FAILED, PluginState.INCOMPATIBLE)


class _Report:
    def __init__(self) -> None:
        self.num_problems = 0

    def fact(self, what: str, value: str) -> None:
        print(f"{what:<12} {value}")

    def problem(self, what: str, value: str) -> None:
        self.num_problems += 1
        print(f"{what:<12} PROBLEM: {value}")


def run(host: PluginHost) -> int:
    """Print the report.

    Returns:
        0 when nothing is wrong, 1 otherwise. What is merely not installed is not wrong.
    """
    report = _Report()
    _describe_machine(report)
    _describe_packages(report, "pegainfer")
    _describe_gpu(report)
    _describe_plugins(report, host)
    for warning in host.warnings:
        if not any(record.error and record.error in warning for record in host.records):
            report.problem("plugins", warning)
    print(f"\n{report.num_problems or 'no'} problem{'s' * (report.num_problems != 1)} found")
    return 1 if report.num_problems else 0


def _describe_machine(report: _Report) -> None:
    report.fact("pegainfer", __version__)
    report.fact("python", f"{platform.python_version()} at {sys.executable}")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    report.fact("machine", f"{platform.platform()}, {cores} cores, {memory / 1e9:.1f} GB memory")


def _describe_packages(report: _Report, dist: str) -> None:
    for requirement in _requirements(dist):
        try:
            report.fact("package", f"{requirement} {metadata.version(requirement)}")
        except metadata.PackageNotFoundError:
            report.problem("package", f"{dist} needs {requirement}, which is not installed")


def _requirements(dist: str) -> Iterator[str]:
    """Names a distribution requires, those of its extras left out."""
    for line in metadata.requires(dist) or []:
        if "extra ==" not in line and (name := re.match(r"[\w.\-]+", line)):
            yield name[0]


def _describe_gpu(report: _Report) -> None:
    try:
        driver = find_driver()
    except DriverError as error:
        report.problem("gpu", f"{error}; the driver or the container's access to it is broken")
        return
    if driver is None:
        report.fact("gpu", "no CUDA driver; models run on the NumPy backend")
        return
    report.fact("gpu", f"driver for CUDA {driver.version[0]}.{driver.version[1]}")
    for ordinal, device in enumerate(driver.devices):
        major, minor = device.compute_capability
        size = f"{device.total_bytes / 1e9:.1f} GB"
        report.fact("gpu", f"{ordinal}: {device.name}, {size}, sm_{major}{minor}")
        if device.compute_capability < OLDEST_CAPABILITY:
            report.problem("gpu", f"{ordinal}: kernels need compute capability 8.0 or newer")
    _try_cupy(report, driver)


def _try_cupy(report: _Report, driver: Driver) -> None:
    install = f"install it: {sys.executable} -m pip install 'pegainfer[{cuda_extra(driver)}]'"
    if importlib.util.find_spec("cupy") is None:
        report.problem("cupy", f"a GPU is here, but CuPy is not installed; {install}")
        return
    try:
        trial = subprocess.run(
            [sys.executable, "-c", _CUPY_TRIAL],
            capture_output=True,
            text=True,
            timeout=_CUPY_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        report.problem("cupy", f"a first allocation did not end within {_CUPY_TIMEOUT_S} s")
        return
    if trial.returncode == 0:
        report.fact("cupy", trial.stdout.strip())
    else:
        last = (trial.stderr.strip().splitlines() or ["no message"])[-1]
        report.problem("cupy", f"installed, but it does not work: {last}; {install}")


def _describe_plugins(report: _Report, host: PluginHost) -> None:
    for record in host.records:
        if record.state in _BROKEN:
            report.problem("plugin", f"{record.label} {record.state}: {record.error}")
            continue
        report.fact("plugin", f"{record.label} {record.state}")
        for requirement in _requirements(record.dist):
            if not _is_installed(requirement):
                report.problem("plugin", f"{record.dist} needs {requirement}, not installed")
    if not host.families:
        first = next(package for package in KNOWN_PACKAGES if package.family)
        report.fact("plugin", f"no model family is loaded; to add one: {install_command(first)}")


def _is_installed(dist: str) -> bool:
    try:
        metadata.distribution(dist)
    except metadata.PackageNotFoundError:
        return False
    return True
