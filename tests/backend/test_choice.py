"""Which backend is taken, and what is said when a GPU cannot be used. No GPU needed."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Callable
from importlib import metadata

import pytest

from pegainfer_core.backend import choice, choose_backend, make_backend
from pegainfer_core.backend.choice import require_usable_gpu
from pegainfer_core.backend.gpu_driver import Device, Driver, DriverError, find_driver
from pegainfer_core.contract import CoreOptions
from pegainfer_core.weights import ConfigError

H200 = Device("NVIDIA H200", 150_000_000_000, (9, 0))
T4 = Device("Tesla T4", 16_000_000_000, (7, 5))


class Machine:
    """What the driver and the environment are made to say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def has(self, driver: Driver | None, *packages: str, dists: tuple[str, ...] = ()) -> None:
        self._monkeypatch.setattr(choice, "find_driver", lambda: driver)
        found: Callable[[str], object] = lambda name: name if name in packages else None  # noqa: E731
        self._monkeypatch.setattr(importlib.util, "find_spec", found)

        def distribution(name: str) -> str:
            if name not in dists:
                raise metadata.PackageNotFoundError(name)
            return name

        self._monkeypatch.setattr(metadata, "distribution", distribution)

    def breaks(self, error: Exception) -> None:
        def broken() -> None:
            raise error

        self._monkeypatch.setattr(choice, "find_driver", broken)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.mark.parametrize("driver", [None, Driver((13, 0), [])], ids=["none", "no devices"])
def test_no_gpu(machine: Machine, driver: Driver | None) -> None:
    machine.has(driver)
    assert choose_backend("auto") == "numpy"
    with pytest.raises(ConfigError, match=r"--backend cuda: no NVIDIA GPU.*--backend numpy"):
        choose_backend("cuda")


@pytest.mark.parametrize("asked", ["auto", "cuda"])
def test_a_gpu_is_taken(machine: Machine, asked: str) -> None:
    machine.has(Driver((13, 0), [H200]), "cupy", dists=("cupy-cuda13x",))
    assert choose_backend(asked) == "cuda"
    assert choose_backend("numpy") == "numpy"


@pytest.mark.parametrize("asked", ["auto", "cuda"])
@pytest.mark.parametrize(("version", "extra"), [((13, 1), "cuda13"), ((12, 8), "cuda12")])
def test_a_gpu_without_cupy_is_an_error_with_the_install_line(
    machine: Machine, asked: str, version: tuple[int, int], extra: str
) -> None:
    machine.has(Driver(version, [H200]))
    with pytest.raises(ConfigError, match=rf"cupy is not installed; .*pip install .*\[{extra}\]"):
        choose_backend(asked)
    assert choose_backend("numpy") == "numpy"


@pytest.mark.parametrize("asked", ["auto", "cuda"])
def test_a_driver_older_than_cupy(machine: Machine, asked: str) -> None:
    machine.has(Driver((12, 4), [H200]), "cupy", dists=("cupy-cuda13x",))
    words = r"supports CUDA 12\.4.* cupy-cuda13x needs CUDA 13; update .*580.*\[cuda12\]"
    with pytest.raises(ConfigError, match=words):
        choose_backend(asked)
    machine.has(Driver((12, 4), [H200]), "cupy", dists=("cupy-cuda12x",))
    assert choose_backend(asked) == "cuda"


@pytest.mark.parametrize("asked", ["auto", "cuda"])
def test_a_broken_driver_is_no_reason_to_be_slow(machine: Machine, asked: str) -> None:
    machine.breaks(DriverError("libcuda.so.1: cuInit failed with CUDA error 802"))
    with pytest.raises(ConfigError, match=r"driver does not work: .* 802; .*--backend numpy"):
        choose_backend(asked)
    assert choose_backend("numpy") == "numpy"


def test_an_old_gpu_is_refused_before_anything_is_loaded(machine: Machine) -> None:
    machine.has(Driver((13, 0), [H200, T4]))
    require_usable_gpu(0)
    with pytest.raises(ConfigError, match=r"GPU 1 \(Tesla T4\) has compute capability 7\.5.*8\.0"):
        require_usable_gpu(1)
    with pytest.raises(ConfigError, match=r"--device 2: this machine has 2 GPU.*1: Tesla T4"):
        require_usable_gpu(2)


def test_cupy_that_cannot_be_loaded(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.has(Driver((13, 0), [H200]))
    monkeypatch.setitem(sys.modules, "pegainfer_core.backend.cuda.cuda_backend", None)
    with pytest.raises(ConfigError, match=r"cannot be loaded: .*--force-reinstall .*doctor"):
        make_backend("cuda", CoreOptions())


class FakeDriverLibrary:
    """Answers the driver's calls as one device would."""

    def __init__(self, init_status: int = 0) -> None:
        self.init_status = init_status

    def cuInit(self, flags: int) -> int:
        return self.init_status

    def cuDriverGetVersion(self, version: object) -> int:
        return store(version, 12040)

    def cuDeviceGetCount(self, count: object) -> int:
        return store(count, 1)

    def cuDeviceGet(self, device: object, ordinal: int) -> int:
        return store(device, ordinal)

    def cuDeviceGetName(self, name: ctypes.Array[ctypes.c_char], size: int, device: object) -> int:
        name.value = b"Test GPU"
        return 0

    def cuDeviceTotalMem_v2(self, total: object, device: object) -> int:
        return store(total, 24 << 30)

    def cuDeviceGetAttribute(self, value: object, attribute: int, device: object) -> int:
        return store(value, {75: 8, 76: 6}[attribute])


def store(reference: object, value: int) -> int:
    reference._obj.value = value  # type: ignore[attr-defined]
    return 0


def test_the_driver_is_asked_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeDriverLibrary())
    assert find_driver() == Driver((12, 4), [Device("Test GPU", 24 << 30, (8, 6))])
    for status, words in ((802, "fabric manager"), (803, "different versions"), (7, "error 7")):
        monkeypatch.setattr(ctypes, "CDLL", lambda name, code=status: FakeDriverLibrary(code))
        with pytest.raises(DriverError, match=rf"cuInit failed with CUDA error {status}") as caught:
            find_driver()
        assert words in str(caught.value)


@pytest.mark.parametrize("status", [34, 100])
def test_a_driver_library_without_a_gpu_is_no_gpu(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeDriverLibrary(status))
    assert find_driver() is None


def test_no_driver_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert find_driver() is None
