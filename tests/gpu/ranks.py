"""One rank of a group of processes: `python -m tests.gpu.ranks RANK NUM_RANKS ID_FILE`.

Exits 0 when every collective gave what NumPy says.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from pegainfer_core.backend import DType
from pegainfer_core.backend.cuda.arrays import dense, widened
from pegainfer_core.backend.cuda.communicator import Communicator, shared_unique_id
from pegainfer_core.backend.cuda.device import Device, DeviceMemory, PinnedMemory, host_address

COUNTS = (1, 5120, 70_001)


class Rank:
    """A communicator, and copies to and from its device."""

    def __init__(self, rank: int, num_ranks: int, id_file: Path) -> None:
        self.device = Device(rank)
        self.rank, self.num_ranks = rank, num_ranks
        self.communicator = Communicator(
            self.device, shared_unique_id(rank, id_file), rank, num_ranks
        )

    def values(self, rank: int, count: int) -> np.ndarray:
        """What a rank contributes: whole numbers, so that sums are exact in every type."""
        return np.random.default_rng(rank).integers(0, 16, count).astype(np.float32)

    def put(self, values: np.ndarray, dtype: DType) -> DeviceMemory:
        held = dense(values, dtype)
        memory = self.device.allocate(held.nbytes)
        self.device.upload(memory.address, host_address(held), held.nbytes)
        self.device.synchronize()
        return memory

    def get(self, memory: DeviceMemory, count: int, dtype: DType) -> np.ndarray:
        pinned = PinnedMemory(count * dtype.itemsize)
        self.device.download(pinned.address, memory.address, count * dtype.itemsize)
        self.device.synchronize()
        return widened(pinned.array, dtype).copy()

    def check_sums(self, count: int, dtype: DType) -> None:
        own, target = self.values(self.rank, count), self.put(np.full(count, np.nan), dtype)
        source = self.put(own, dtype)
        expected = sum(self.values(rank, count) for rank in range(self.num_ranks))
        self.communicator.all_reduce(source.address, target.address, count, dtype)
        np.testing.assert_array_equal(self.get(target, count, dtype), expected)
        np.testing.assert_array_equal(self.get(source, count, dtype), own)
        self.communicator.all_reduce(source.address, source.address, count, dtype)
        np.testing.assert_array_equal(self.get(source, count, dtype), expected)

    def check_gathering(self, count: int, dtype: DType) -> None:
        source = self.put(self.values(self.rank, count), dtype)
        target = self.put(np.full(count * self.num_ranks, np.nan), dtype)
        self.communicator.all_gather(source.address, target.address, count, dtype)
        expected = np.concatenate([self.values(rank, count) for rank in range(self.num_ranks)])
        np.testing.assert_array_equal(self.get(target, expected.size, dtype), expected)

    def check_a_ring(self, count: int, dtype: DType) -> None:
        source = self.put(self.values(self.rank, count), dtype)
        target = self.put(np.full(count, np.nan), dtype)
        num_bytes = count * dtype.itemsize
        behind, ahead = (self.rank - 1) % self.num_ranks, (self.rank + 1) % self.num_ranks
        with self.communicator.group():
            self.communicator.send(source.address, num_bytes, ahead)
            self.communicator.receive(target.address, num_bytes, behind)
        expected = self.values(behind, count)
        np.testing.assert_array_equal(self.get(target, count, dtype), expected)

    def check_a_recording(self, dtype: DType) -> None:
        count, num_replays = 2560, 3
        memory = self.put(np.full(count, self.rank + 1, np.float32), dtype)

        def work() -> None:
            self.communicator.all_reduce(memory.address, memory.address, count, dtype)

        recording = self.device.record(work)
        for _ in range(num_replays):
            recording.replay(self.device)
        first = self.num_ranks * (self.num_ranks + 1) // 2
        expected = first * self.num_ranks ** (num_replays - 1)
        assert (self.get(memory, count, dtype) == expected).all()


def main() -> None:
    rank = Rank(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
    for dtype in (DType.FLOAT32, DType.BFLOAT16):
        for count in COUNTS:
            rank.check_sums(count, dtype)
            rank.check_gathering(count, dtype)
            rank.check_a_ring(count, dtype)
        rank.check_a_recording(dtype)
    rank.communicator.check()
    rank.communicator.close()


if __name__ == "__main__":
    main()
