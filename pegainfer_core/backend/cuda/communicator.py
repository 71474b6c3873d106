"""Collective operations among GPUs, one rank a process, on the rank's own stream.

Knows no model and starts no process: whoever does hands every rank the same id.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cupy.cuda import nccl

from pegainfer_core.backend.cuda.errors import CudaError
from pegainfer_core.backend.dtype import DType
from pegainfer_core.weights import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pegainfer_core.backend.cuda.device import Device

UNIQUE_ID_BYTES: Final = 128
_ID_PERIOD_S: Final = 0.01


def new_unique_id() -> bytes:
    """What the ranks of one communicator know each other by; made once, given to all of them.

    Raises:
        ConfigError: NCCL is not installed.
    """
    _require_nccl()
    return bytes(nccl.get_unique_id())


def shared_unique_id(rank: int, path: Path, timeout_s: float = 60.0) -> bytes:
    """The id of ranks that share a folder: rank 0 makes and writes it, the others wait for it.

    Args:
        rank: This rank.
        path: A file that does not exist yet.
        timeout_s: How long to wait.

    Raises:
        ConfigError: NCCL is not installed.
        CudaError: Rank 0 wrote nothing in time.
    """
    if rank == 0:
        made = new_unique_id()
        partial = path.with_suffix(".partial")
        partial.write_bytes(made)
        partial.replace(path)
        return made
    deadline_s = time.monotonic() + timeout_s
    while not path.exists():
        if time.monotonic() > deadline_s:
            raise CudaError(f"rank 0 wrote no id to {path} within {timeout_s:.0f} s")
        time.sleep(_ID_PERIOD_S)
    return path.read_bytes()


class Communicator:
    """One rank's end.

    Every rank calls the same operations in the same order. They are submitted to the device's
    stream, in order with kernels, and may be recorded into a graph like kernels. The first of each
    kind and size connects the ranks, which allocates: run it once before it is recorded.

    Args:
        device: The rank's GPU, in use by the calling thread.
        unique_id: From `new_unique_id`, the same for every rank.
        rank: 0 to `num_ranks` - 1.
        num_ranks: How many take part; the constructor waits for all of them.

    Attributes:
        rank: This one.
        num_ranks: How many there are.

    Raises:
        ConfigError: NCCL is not installed, or the arguments do not make a group.
        CudaError: The ranks could not be connected.
    """

    def __init__(self, device: Device, unique_id: bytes, rank: int, num_ranks: int) -> None:
        _require_nccl()
        if len(unique_id) != UNIQUE_ID_BYTES:
            raise ConfigError(
                f"a communicator's id has {UNIQUE_ID_BYTES} bytes, not {len(unique_id)}"
            )
        if not 0 <= rank < num_ranks:
            raise ConfigError(f"rank {rank} is not one of {num_ranks} ranks, which count from 0")
        self.rank = rank
        self.num_ranks = num_ranks
        self._device = device
        self._stream = device.stream
        with self._errors("connecting the ranks"):
            self._nccl = nccl.NcclCommunicator(num_ranks, unique_id, rank)

    def all_reduce(self, source: int, target: int, count: int, dtype: DType) -> None:
        """Sum over the ranks; all get the same bits.

        Args:
            source: Device address of this rank's values.
            target: Where the sums go; may be `source`.
            count: Values.
            dtype: Their type; sums of bfloat16 are rounded at each hop.

        Raises:
            CudaError: NCCL refuses, or another rank is gone.
        """
        kind = _NCCL_TYPES[dtype]
        with self._errors("all-reduce"):
            self._nccl.allReduce(source, target, count, kind, nccl.NCCL_SUM, self._stream)

    def all_gather(self, source: int, target: int, count: int, dtype: DType) -> None:
        """Collect every rank's values, in order of rank.

        Args:
            source: Device address of this rank's values.
            target: [num_ranks, count] values.
            count: Values of one rank.
            dtype: Their type.

        Raises:
            CudaError: As for `all_reduce`.
        """
        with self._errors("all-gather"):
            self._nccl.allGather(source, target, count, _NCCL_TYPES[dtype], self._stream)

    def send(self, source: int, num_bytes: int, rank: int) -> None:
        """Send to one rank, which receives as many bytes. Several belong into a `group`."""
        with self._errors(f"sending to rank {rank}"):
            self._nccl.send(source, num_bytes, nccl.NCCL_UINT8, rank, self._stream)

    def receive(self, target: int, num_bytes: int, rank: int) -> None:
        """Receive from one rank."""
        with self._errors(f"receiving from rank {rank}"):
            self._nccl.recv(target, num_bytes, nccl.NCCL_UINT8, rank, self._stream)

    @contextmanager
    def group(self) -> Iterator[None]:
        """Submit what is called inside as one operation: sends and receives then cannot block."""
        nccl.groupStart()
        try:
            yield
        finally:
            with self._errors("a group of transfers"):
                nccl.groupEnd()

    def check(self) -> None:
        """Look for a rank that failed since the last call; does not wait.

        Raises:
            CudaError: There is one. The communicator must be aborted.
        """
        with self._errors("an earlier operation"):
            self._nccl.check_async_error()

    def abort(self) -> None:
        """End operations under way, which wait for a rank that is gone, and leave the group."""
        self._nccl.abort()

    def close(self) -> None:
        """Leave the group once everything submitted is done."""
        self._nccl.destroy()

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except nccl.NcclError as error:
            raise CudaError(
                f"GPU {self._device.ordinal}, rank {self.rank} of {self.num_ranks}: {what} "
                f"failed: {error}"
            ) from error


def _require_nccl() -> None:
    if not nccl.available:
        raise ConfigError(
            "several GPUs need NCCL, which CuPy cannot load; install it: pip install "
            "nvidia-nccl-cu13 (nvidia-nccl-cu12 with CUDA 12)"
        )


_NCCL_TYPES: Final = {
    DType.FLOAT32: nccl.NCCL_FLOAT32 if nccl.available else 0,
    DType.BFLOAT16: nccl.NCCL_BFLOAT16 if nccl.available else 0,
}
