"""Times collectives among all GPUs of a machine: `bench_nccl.py [--ranks N]`.

One process a GPU. Prints, per message size, what an all-reduce takes when it is launched by itself
and when 72 of them (two a layer of a 36-layer decoder) are one graph, and the bus bandwidth.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import cupy

from pegainfer_core.backend import DType
from pegainfer_core.backend.cuda.communicator import Communicator, shared_unique_id
from pegainfer_core.backend.cuda.device import Device, Event

if TYPE_CHECKING:
    from collections.abc import Callable

IN_GRAPH = 72
REPEATS = 20
WIDTH = 2560
ROWS = (1, 8, 32, 128, 256, 2048, 8192)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=cupy.cuda.runtime.getDeviceCount())
    parser.add_argument("--rank", type=int)
    parser.add_argument("--id-file", type=Path)
    options = parser.parse_args()
    if options.rank is not None:
        run_rank(options.rank, options.ranks, options.id_file)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--ranks", str(options.ranks)]
        command += ["--id-file", f"{folder}/id"]
        ranks = [subprocess.Popen([*command, "--rank", str(rank)]) for rank in range(options.ranks)]
        return max(rank.wait() for rank in ranks)


def run_rank(rank: int, num_ranks: int, id_file: Path) -> None:
    device = Device(rank)
    communicator = Communicator(device, shared_unique_id(rank, id_file), rank, num_ranks)
    if rank == 0:
        print(f"{num_ranks} x {device.name}, all-reduce of bfloat16, {WIDTH} a row", flush=True)
        print(f"{'rows':>6} {'KiB':>8} {'alone us':>9} {'in graph us':>12} {'bus GB/s':>9}")
    for rows in ROWS:
        alone_us, graph_us = _time(device, communicator, rows * WIDTH)
        num_bytes = rows * WIDTH * DType.BFLOAT16.itemsize
        bus = num_bytes * 2 * (num_ranks - 1) / num_ranks / graph_us / 1e3
        if rank == 0:
            kib = num_bytes / 1024
            print(f"{rows:>6} {kib:>8.0f} {alone_us:>9.1f} {graph_us:>12.1f} {bus:>9.1f}")
    communicator.close()


def _time(device: Device, communicator: Communicator, count: int) -> tuple[float, float]:
    """Microseconds of one all-reduce: launched alone, and as one of many in a graph."""
    memory = device.allocate(count * DType.BFLOAT16.itemsize)
    device.fill(memory.address, 0, memory.num_bytes)

    def once() -> None:
        communicator.all_reduce(memory.address, memory.address, count, DType.BFLOAT16)

    def many() -> None:
        for _ in range(IN_GRAPH):
            once()

    once()
    recording = device.record(many)
    alone_ms = _elapsed_ms(device, many)
    graph_ms = _elapsed_ms(device, lambda: recording.replay(device))
    return 1e3 * alone_ms / IN_GRAPH, 1e3 * graph_ms / IN_GRAPH


def _elapsed_ms(device: Device, work: Callable[[], None]) -> float:
    begin, end = Event(timing=True), Event(timing=True)
    work()
    begin.record(device)
    for _ in range(REPEATS):
        work()
    end.record(device)
    end.wait()
    return end.ms_since(begin) / REPEATS


if __name__ == "__main__":
    sys.exit(main())
