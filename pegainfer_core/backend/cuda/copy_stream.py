"""Copies in a stream of their own: few calls for many, and events that tell when they landed.

Knows addresses only.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from cupy_backends.cuda.api import runtime

from pegainfer_core.backend.cuda import driver
from pegainfer_core.backend.cuda.copy_runs import CopyRun, runs
from pegainfer_core.backend.cuda.device import when_gone

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOT_READY: Final = 600
_IN_STREAM_ORDER: Final = 1
_OVERLAP_WITH_COMPUTE: Final = 1


class StreamEvent:
    """A point in the work of any stream; a `CopyTicket` and a `Fence`."""

    def __init__(self, stream: int) -> None:
        self._handle = int(runtime.eventCreateWithFlags(runtime.eventDisableTiming))
        when_gone(self, runtime.eventDestroy, self._handle)
        runtime.eventRecord(self._handle, stream)
        self._is_reached = False

    def done(self) -> bool:
        """Whether the device is there.

        Raises:
            CudaError: The device failed.
        """
        if not self._is_reached:
            status = driver.library().cuEventQuery(ctypes.c_void_p(self._handle))
            if status != _NOT_READY:
                driver.check(status, "copying KV pages")
                self._is_reached = True
        return self._is_reached

    def hold_back(self, stream: int) -> None:
        """Let a stream's later work wait for this."""
        runtime.streamWaitEvent(stream, self._handle)


class CopyStream:
    """A stream for copies in one direction, in use by one thread.

    Args:
        kind: Of the runtime's copies, such as `runtime.memcpyHostToDevice`.
        batches: Whether the driver is given many copies in one call, where it can take them.
    """

    def __init__(self, kind: int, *, batches: bool = True) -> None:
        self._kind = kind
        self._batch = _batch_function() if batches else None
        self._handle = int(runtime.streamCreateWithFlags(runtime.streamNonBlocking))
        when_gone(self, runtime.streamDestroy, self._handle)

    def wait_for(self, event: StreamEvent) -> None:
        """Let later copies wait for an event of another stream."""
        event.hold_back(self._handle)

    def copy(self, targets: Sequence[int], sources: Sequence[int], num_bytes: int) -> StreamEvent:
        """Copy pieces of one size.

        Raises:
            CudaError: The driver refused.
        """
        if self._batch is not None and len(targets) > 1:
            self._copy_batch(self._batch, targets, sources, num_bytes)
        else:
            for run in runs(targets, sources):
                self._copy_run(run, num_bytes)
        return StreamEvent(self._handle)

    def synchronize(self) -> None:
        """Wait for what is under way."""
        runtime.streamSynchronize(self._handle)

    def _copy_run(self, run: CopyRun, num_bytes: int) -> None:
        if run.num_pieces == 1:
            runtime.memcpyAsync(run.target, run.source, num_bytes, self._kind, self._handle)
            return
        runtime.memcpy2DAsync(
            run.target, run.target_stride, run.source, run.source_stride,
            num_bytes, run.num_pieces, self._kind, self._handle,
        )  # fmt: skip

    def _copy_batch(
        self, function: _BatchFunction, targets: Sequence[int], sources: Sequence[int], size: int
    ) -> None:
        count = len(targets)
        attributes = _CopyAttributes(source_order=_IN_STREAM_ORDER, flags=_OVERLAP_WITH_COMPUTE)
        failed = ctypes.c_size_t()
        status = getattr(driver.library(), function.name)(
            (ctypes.c_uint64 * count)(*targets),
            (ctypes.c_uint64 * count)(*sources),
            (ctypes.c_size_t * count)(*[size] * count),
            ctypes.c_size_t(count),
            ctypes.byref(attributes),
            ctypes.byref(ctypes.c_size_t(0)),
            ctypes.c_size_t(1),
            *([ctypes.byref(failed)] if function.tells_failed else []),
            ctypes.c_void_p(self._handle),
        )
        driver.check(status, f"copying {count} KV pages")


class _CopyAttributes(ctypes.Structure):
    """`CUmemcpyAttributes`; the locations are left open, because addresses tell them."""

    _fields_ = (
        ("source_order", ctypes.c_int),
        ("source_location", ctypes.c_int * 2),
        ("target_location", ctypes.c_int * 2),
        ("flags", ctypes.c_uint),
    )


class _BatchFunction(NamedTuple):
    """The driver's function; its first form, of CUDA 12.8, also tells which copy failed."""

    name: str
    tells_failed: bool


@cache
def _batch_function() -> _BatchFunction | None:
    for name, tells_failed in (("cuMemcpyBatchAsync_v2", False), ("cuMemcpyBatchAsync", True)):
        if hasattr(driver.library(), name):
            return _BatchFunction(name, tells_failed)
    return None
