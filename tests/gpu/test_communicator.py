"""Collectives among one process a GPU: one rank on a machine with one, two where there are two."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120


def run_ranks(num_ranks: int, id_file: Path) -> None:
    command = [sys.executable, "-m", "tests.gpu.ranks"]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(num_ranks), str(id_file)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(num_ranks)
    ]
    try:
        for rank in ranks:
            _, errors = rank.communicate(timeout=TIMEOUT_S)
            assert rank.returncode == 0, errors
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def test_collectives_give_what_numpy_says(tmp_path: Path) -> None:
    import cupy

    num_gpus = int(cupy.cuda.runtime.getDeviceCount())
    for num_ranks in range(1, min(num_gpus, 2) + 1):
        run_ranks(num_ranks, tmp_path / f"id-{num_ranks}")


def test_what_makes_no_group_is_refused() -> None:
    from pegainfer_core.backend.cuda.communicator import Communicator, new_unique_id
    from pegainfer_core.backend.cuda.device import Device
    from pegainfer_core.weights import ConfigError

    device = Device(0)
    with pytest.raises(ConfigError, match="id has 128 bytes, not 3"):
        Communicator(device, b"abc", 0, 1)
    with pytest.raises(ConfigError, match="rank 2 is not one of 2 ranks"):
        Communicator(device, new_unique_id(), 2, 2)
