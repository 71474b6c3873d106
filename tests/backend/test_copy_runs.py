"""Copies put together are the copies asked for, in their order, each once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pegainfer_core.backend.cuda.copy_runs import CopyRun, runs

SIZE = 10


def unrolled(run: CopyRun) -> list[tuple[int, int]]:
    return [
        (run.target + i * run.target_stride, run.source + i * run.source_stride)
        for i in range(run.num_pieces)
    ]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6))))
def test_runs_are_the_pieces(pieces: list[tuple[int, int]]) -> None:
    pairs = [(SIZE * target, 12 * source) for target, source in pieces]
    found = list(runs([target for target, _ in pairs], [source for _, source in pairs]))
    assert [pair for run in found for pair in unrolled(run)] == pairs
    # No copy in two dimensions may have rows that overlap.
    assert all(run.num_pieces == 1 or run.target_stride >= SIZE for run in found)


def test_contiguous_pages_are_one_run() -> None:
    targets, sources = list(range(0, 120, 12)), list(range(500, 600, 10))
    assert list(runs(targets, sources)) == [CopyRun(0, 500, 12, 10, 10)]


def test_backward_and_repeated_addresses_are_apart() -> None:
    assert [run.num_pieces for run in runs([30, 20, 10], [0, 10, 20])] == [1, 1, 1]
    assert [run.num_pieces for run in runs([0, 10, 20], [5, 5, 5])] == [1, 1, 1]


def test_too_far_apart_for_the_driver() -> None:
    assert [run.num_pieces for run in runs([0, 1 << 31], [0, 10])] == [1, 1]
