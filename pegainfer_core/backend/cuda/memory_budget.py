"""Whether weights and KV pages fit into a GPU, and what to say when they do not. Asks no device."""

from __future__ import annotations

from typing import NamedTuple

from pegainfer_core.weights.errors import ConfigError

_GIB = 2**30


class GpuMemory(NamedTuple):
    """A GPU's memory at one moment.

    Attributes:
        gpu: Names it in messages.
        free_bytes: Not in use by anybody.
        total_bytes: All of it.
        foreign_bytes: In use before this engine started: by other processes.
    """

    gpu: str
    free_bytes: int
    total_bytes: int
    foreign_bytes: int

    def users(self) -> str:
        """Who has how much of it."""
        own = self.total_bytes - self.free_bytes - self.foreign_bytes
        return (
            f"of {_gib(self.total_bytes)}, {_gib(self.foreign_bytes)} were in use before this "
            f"engine started and {_gib(max(own, 0))} are its own"
        )


def require_room_for_weights(memory: GpuMemory, num_bytes: int) -> None:
    """Refuse weights larger than what is free, before any of them is read.

    Raises:
        ConfigError: They are.
    """
    if num_bytes > memory.free_bytes:
        raise ConfigError(
            f"{memory.gpu}: the weights need {_gib(num_bytes)}, but only "
            f"{_gib(memory.free_bytes)} of {_gib(memory.total_bytes)} are free; end what else uses "
            "this GPU (nvidia-smi lists it), choose another with --device, or serve a smaller "
            "model with --model-path"
        )


def pages_within(memory: GpuMemory, page_bytes: int, utilization: float) -> int:
    """KV pages that fit into the share of the memory that may be used, beside what is in use.

    Args:
        memory: After weights and step buffers were taken.
        page_bytes: Size of one; one more than the result is allocated, for padding.
        utilization: The option `--gpu-memory-utilization`, 0 to 1.

    Raises:
        ConfigError: Not even one fits.
    """
    allowed = int(memory.total_bytes * utilization)
    budget = min(allowed - (memory.total_bytes - memory.free_bytes), memory.free_bytes)
    num_pages = budget // page_bytes - 1
    if num_pages < 1:
        raise ConfigError(
            f"{memory.gpu}: {memory.users()}; --gpu-memory-utilization {utilization} allows "
            f"{_gib(allowed)} in all: nothing is left for KV pages of {page_bytes / 2**20:.2f} "
            "MiB; raise it, end what else uses this GPU (nvidia-smi lists it), choose another with "
            "--device, or lower --max-prefill-tokens and --max-num-seqs"
        )
    return num_pages


def require_room_for_pages(memory: GpuMemory, num_pages: int, page_bytes: int) -> None:
    """Refuse a number of KV pages that was asked for and does not fit.

    Raises:
        ConfigError: It does not.
    """
    num_bytes = num_pages * page_bytes
    if num_bytes > memory.free_bytes:
        raise ConfigError(
            f"{memory.gpu}: {num_pages} KV pages need {_gib(num_bytes)}, but only "
            f"{_gib(memory.free_bytes)} are free ({memory.users()}); lower --num-kv-pages, or "
            "leave it out to take what fits"
        )


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / _GIB:.1f} GiB"
