"""A device that is host memory, and a library whose kernels Triton's interpreter runs.

Only for processes that set TRITON_INTERPRET before anything imports Triton. Float32 alone: the
interpreter has no bfloat16 arithmetic.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from pegainfer_core.backend import DType, Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.kernels import KernelSpec

_ALIGNED = 256


class HostDevice:
    """As much of a device as ops ask for."""

    stream = 0
    arch = 80
    num_multiprocessors = 4

    def allocate(self, num_bytes: int) -> SimpleNamespace:
        """Aligned as a device's; full of what is not a number."""
        raw = np.full(num_bytes + _ALIGNED, 0xFF, np.uint8)
        start = -raw.ctypes.data % _ALIGNED
        return SimpleNamespace(address=raw.ctypes.data + start, num_bytes=num_bytes, owner=raw)

    def upload(self, target: int, source: int, num_bytes: int) -> None:
        ctypes.memmove(target, source, num_bytes)

    def fill(self, target: int, value: int, num_bytes: int) -> None:
        ctypes.memset(target, value, num_bytes)

    def tensor(self, values: NDArray[np.float32]) -> Tensor:
        made = Tensor(values.shape, DType.FLOAT32, self.allocate(values.nbytes))
        array(made)[...] = values
        return made


class HostLibrary:
    """Kernels by spec."""

    def get(self, spec: KernelSpec) -> _Interpreted:
        return _Interpreted(spec)


class _Interpreted:
    def __init__(self, spec: KernelSpec) -> None:
        module = importlib.import_module(f"pegainfer_core.kernels.src.{spec.module}")
        self._function = getattr(module, spec.function)
        self._spec = spec

    def launch(self, stream: int, grid: tuple[int, int], *arguments: float) -> None:
        kinds = self._spec.arguments
        for kind, value in zip(kinds, arguments, strict=True):
            # What the compiler is promised holds.
            assert not kind.endswith(":16") or value % 16 == 0, (self._spec.label, kind, value)
        given = (
            _Pointer(int(value), kind.removesuffix(":16")[1:]) if kind[0] == "*" else value
            for kind, value in zip(kinds, arguments, strict=True)
        )
        self._function[grid](*given, **dict(self._spec.constants))


class _Pointer:
    """What the interpreter takes for a tensor of which it wants the address alone."""

    def __init__(self, where: int, dtype: str) -> None:
        self._where = where
        self.dtype = dtype

    def data_ptr(self) -> int:
        return self._where

    def untyped_storage(self) -> _Pointer:
        return self

    def cpu(self) -> _Pointer:
        return self

    def copy_(self, other: object) -> None:
        return

    def new_empty(self, size: int, device: str) -> _Pointer:
        return _Pointer(self._where, self.dtype)

    def set_(self, *arguments: object) -> None:
        return

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return ()

    def stride(self) -> tuple[int, ...]:
        return ()


def array(tensor: Tensor) -> NDArray[np.float32]:
    """Its values, to read and write."""
    kept = tensor.storage
    assert isinstance(kept, SimpleNamespace)
    raw = (ctypes.c_char * kept.num_bytes).from_address(kept.address)
    values: NDArray[np.float32] = np.frombuffer(raw, np.float32).reshape(tensor.shape)
    return values


def stand_in_for_cupy() -> None:
    """Let the backend's modules be imported where CuPy is not: uploads are copied at once."""
    runtime = ModuleType("cupy_backends.cuda.api.runtime")
    pinned: dict[int, NDArray[np.uint8]] = {}

    def host_alloc(num_bytes: int, flags: int) -> int:
        made = np.full(num_bytes, 0xFF, np.uint8)
        pinned[made.ctypes.data] = made
        return int(made.ctypes.data)

    vars(runtime).update(
        CUDARuntimeError=RuntimeError,
        eventCreateWithFlags=lambda flags: 0,
        eventDestroy=lambda event: None,
        eventRecord=lambda event, stream: None,
        eventSynchronize=lambda event: None,
        eventDisableTiming=2,
        freeHost=pinned.pop,
        hostAlloc=host_alloc,
        hostAllocPortable=1,
    )
    api = ModuleType("cupy_backends.cuda.api")
    vars(api)["runtime"] = runtime
    sys.modules |= {
        "cupy_backends": ModuleType("cupy_backends"),
        "cupy_backends.cuda": ModuleType("cupy_backends.cuda"),
        "cupy_backends.cuda.api": api,
        "cupy_backends.cuda.api.runtime": runtime,
    }
