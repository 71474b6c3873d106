"""Products shared out by threads of our own."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from pegainfer_core.backend import DType, NumpyBackend
from pegainfer_core.backend.numpy import kernels
from pegainfer_core.backend.numpy.blas_threads import BlasThreads
from pegainfer_core.backend.numpy.numpy_ops import NumpyOps
from pegainfer_core.backend.numpy.thread_team import ThreadTeam


class FakeBlas(BlasThreads):
    """Counts threads without a library."""

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads

    def get(self) -> int:
        return self.num_threads

    def set(self, num_threads: int) -> None:
        self.num_threads = num_threads


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_tasks_run_side_by_side(num_threads: int) -> None:
    team = ThreadTeam(FakeBlas(num_threads))
    together = threading.Barrier(num_threads, timeout=10)
    for _ in range(3):
        team.run([together.wait] * num_threads)
    team.close()


def test_the_library_gets_one_thread_while_the_team_is_engaged() -> None:
    blas = FakeBlas(3)
    team = ThreadTeam(blas)
    team.engage(True)
    assert (blas.num_threads, team.engaged, team.size) == (1, True, 3)
    team.engage(False)
    assert (blas.num_threads, team.engaged) == (3, False)
    team.engage(True)
    team.close()
    assert blas.num_threads == 3


@pytest.mark.parametrize("blas", [None, FakeBlas(1)])
def test_nobody_to_share_with(blas: FakeBlas | None) -> None:
    team = ThreadTeam(blas)
    team.engage(True)
    assert (team.engaged, team.size) == (False, 1)
    team.close()


@pytest.mark.parametrize("failing", [0, 1])
def test_a_fault_reaches_the_caller_once_all_have_ended(failing: int) -> None:
    team = ThreadTeam(FakeBlas(2))
    ended: list[int] = []

    def task(index: int) -> None:
        ended.append(index)
        if index == failing:
            raise ValueError(f"task {index}")

    for _ in range(2):
        with pytest.raises(ValueError, match=f"task {failing}"):
            team.run([lambda: task(0), lambda: task(1)])
    assert sorted(ended) == [0, 0, 1, 1]
    team.run([lambda: task(2), lambda: task(3)])
    team.close()


def test_closing_ends_the_threads() -> None:
    before = threading.active_count()
    team = ThreadTeam(FakeBlas(4))
    assert threading.active_count() == before + 3
    team.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("count", [1, 3, 9])
@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("num_threads", [2, 3])
def test_shared_products_are_whole(
    count: int, by_columns: bool, num_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared: list[int] = []
    multiply_shared = kernels.multiply_shared
    monkeypatch.setattr(
        kernels,
        "multiply_shared",
        lambda *arguments: (shared.append(1), multiply_shared(*arguments)),
    )
    monkeypatch.setattr("pegainfer_core.backend.numpy.numpy_ops.MIN_SHARED_WORK", 1000)
    team = ThreadTeam(FakeBlas(num_threads))
    team.engage(True)
    backend, ops = NumpyBackend(), NumpyOps(team)
    random = np.random.default_rng(0)
    x = random.standard_normal((9, 300)).astype(np.float32)
    matrix = random.standard_normal((1001, 300)).astype(np.float32)
    held = np.asfortranarray(matrix) if by_columns else matrix
    out = backend.adopt(np.full((9, 1001), 7, np.float32), DType.FLOAT32)
    weight = backend.adopt(held, DType.FLOAT32)
    ops.linear(count, backend.adopt(x, DType.FLOAT32), weight, out)
    expected = x[:count].astype(np.float64) @ matrix.T
    np.testing.assert_allclose(backend.to_host(out, count), expected, atol=2e-4)
    assert (backend.to_host(out, 9)[count:] == 7).all()
    assert shared
    team.close()
    backend.close()
