"""Products shared out by threads of our own."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pegainfer_core.backend import DType, NumpyBackend, Tensor
from pegainfer_core.backend.numpy import kernels
from pegainfer_core.backend.numpy.blas_threads import BlasThreads, find_blas_threads
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


def test_the_library_has_its_threads_only_while_it_is_lent_them() -> None:
    blas = FakeBlas(3)
    team = ThreadTeam(blas)
    assert (blas.num_threads, blas.own(), team.size) == (1, 3, 3)
    lent: list[int] = []
    team.lend(lambda: lent.append(blas.num_threads))
    with pytest.raises(ZeroDivisionError):
        team.lend(lambda: 1 / 0)
    assert (lent, blas.num_threads) == ([3], 1)
    team.close()
    team.close()
    assert blas.num_threads == 3


def test_two_teams_have_one_library() -> None:
    """The second one is as large as the first, and nobody takes threads from the other."""
    blas = FakeBlas(3)
    first, second = ThreadTeam(blas), ThreadTeam(blas)
    assert first.size == second.size == 3
    first.close()
    assert (blas.num_threads, blas.own()) == (1, 3)
    blas.set_own(2)
    assert (blas.num_threads, ThreadTeam(blas).size) == (1, 2)
    second.close()
    assert blas.num_threads == 2


def test_a_forgotten_team_lets_go() -> None:
    blas = FakeBlas(2)
    team = ThreadTeam(blas)
    assert blas.num_threads == 1
    del team
    assert blas.num_threads == 2


@pytest.mark.parametrize("blas", [None, FakeBlas(1)])
def test_nobody_to_share_with(blas: FakeBlas | None) -> None:
    team = ThreadTeam(blas)
    assert team.size == 1
    ran: list[int] = []
    team.lend(lambda: ran.append(1))
    team.close()
    assert ran
    assert blas is None or blas.num_threads == 1


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
    run = ThreadTeam.run
    monkeypatch.setattr(
        ThreadTeam, "run", lambda team, tasks: (shared.append(len(tasks)), run(team, tasks))
    )
    monkeypatch.setattr(kernels, "_MIN_THREADED_VALUES", 1000)
    monkeypatch.setattr("pegainfer_core.backend.numpy.numpy_ops.MIN_SHARED_WORK", 1000)
    team = ThreadTeam(FakeBlas(num_threads))
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
    assert shared == [num_threads]
    team.close()
    backend.close()


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 3),
    num_rows=st.integers(1, 3000),
    width=st.integers(1, 1500),
    by_columns=st.booleans(),
    dtype=st.sampled_from([DType.FLOAT32, DType.BFLOAT16]),
    seed=st.integers(0, 2**32 - 1),
)
@example(1, 1500, 3000, False, DType.FLOAT32, 0)
@example(3, 6001, 700, True, DType.FLOAT32, 0)
@example(2, 1030, 447, False, DType.FLOAT32, 0)
def test_who_serves_a_step_changes_no_bit(
    count: int, num_rows: int, width: int, by_columns: bool, dtype: DType, seed: int
) -> None:
    """Else an answer would depend on how busy the machine was."""
    blas = find_blas_threads()
    if blas is None:
        pytest.skip("NumPy was built without OpenBLAS")
    own = blas.own()
    blas.set_own(2)
    team = ThreadTeam(blas)
    team.alternates = True
    ops, random = NumpyOps(team), np.random.default_rng(seed)
    x = random.standard_normal((count, width)).astype(np.float32)
    matrix = random.standard_normal((num_rows, width)).astype(np.float32)
    weight = Tensor(matrix.shape, dtype, np.asfortranarray(matrix) if by_columns else matrix)
    results = []
    for by_library in (False, True, False):
        team.by_library = by_library
        out = np.empty((count, num_rows), np.float32)
        ops.linear(count, Tensor(x.shape, dtype, x), weight, Tensor(out.shape, dtype, out))
        results.append(out)
    team.close()
    blas.set_own(own)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
