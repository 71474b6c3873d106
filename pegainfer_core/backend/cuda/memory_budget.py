"""Whether weights and KV pages fit into a GPU, and what to say when they do not. Asks no device."""

from __future__ import annotations

from typing import Final, NamedTuple

from pegainfer_core.weights.errors import ConfigError

_GIB = 2**30
KEPT_FREE_BYTES: Final = 512 << 20
"""Left for recordings and libraries where others hold the rest."""


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

    @property
    def own_bytes(self) -> int:
        """In use by this engine, as far as others use what they did when it started."""
        return max(self.total_bytes - self.free_bytes - self.foreign_bytes, 0)

    def users(self) -> str:
        """Who has how much of it."""
        return (
            f"of {_gib(self.total_bytes)}, {_gib(self.foreign_bytes)} were in use before this "
            f"engine started and {_gib(self.own_bytes)} are its own"
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


def room_within(memory: GpuMemory, utilization: float) -> int:
    """Bytes that this engine may still take; below zero if it has more than its share.

    The share is of all the memory, whoever else holds some of it; where that leaves less, all but
    `KEPT_FREE_BYTES` of what is free is taken.

    Args:
        memory: As it is now.
        utilization: The option `--gpu-memory-utilization`, 0 to 1.
    """
    allowed = int(memory.total_bytes * utilization)
    return min(allowed - memory.own_bytes, memory.free_bytes - KEPT_FREE_BYTES)


def pages_within(memory: GpuMemory, page_bytes: int, utilization: float) -> int:
    """KV pages that fit into the share of the memory that this engine may use; see `room_within`.

    Args:
        memory: After weights and step buffers were taken.
        page_bytes: Size of one; one more than the result is allocated, for padding.
        utilization: The option `--gpu-memory-utilization`, 0 to 1.

    Raises:
        ConfigError: Not even one fits.
    """
    num_pages = room_within(memory, utilization) // page_bytes - 1
    if num_pages < 1:
        allowed = int(memory.total_bytes * utilization)
        raise ConfigError(
            f"{memory.gpu}: {memory.users()}; --gpu-memory-utilization {utilization} allows it "
            f"{_gib(allowed)}, and {_gib(memory.free_bytes)} are free, of which "
            f"{_gib(KEPT_FREE_BYTES)} stay so: nothing is left for KV pages of "
            f"{page_bytes / 2**20:.2f} MiB; raise it, end what else uses this GPU (nvidia-smi "
            "lists it), choose another with --device, or lower --max-prefill-tokens and "
            "--max-num-seqs"
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


def require_room_for_states(memory: GpuMemory, num_slots: int, slot_bytes: int) -> None:
    """Refuse recurrent states that do not fit.

    Raises:
        ConfigError: They do not.
    """
    num_bytes = num_slots * slot_bytes
    if num_bytes > memory.free_bytes:
        raise ConfigError(
            f"{memory.gpu}: {num_slots} recurrent states need {_gib(num_bytes)}, but only "
            f"{_gib(memory.free_bytes)} are free ({memory.users()}); lower --max-num-seqs or "
            "--state-cache-gib"
        )


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / _GIB:.1f} GiB"
