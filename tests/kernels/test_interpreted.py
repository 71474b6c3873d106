"""Hybrid models' kernels against NumPy where no GPU is: Triton's interpreter runs them.

In a process of its own, for Triton is told at its import that it interprets.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

import pytest

from tests.kernels.interpreted import heads
from tests.kernels.interpreted.delta import Case, Row, run

if TYPE_CHECKING:
    from collections.abc import Iterator

# Runs where Triton is, with what `make test-kernels` installs; it never touches a GPU.
pytestmark = pytest.mark.gpu

SMALL = (1, 1, 16, 16, 4)
CASES = {
    "chunk borders": Case(
        SMALL, ((Row(0, 63, 0), Row(0, 64, 1), Row(0, 65, 2), Row(0, 2, 3), Row(0, 130, 4)),)
    ),
    "three value heads a key head, odd sizes": Case(
        (2, 6, 20, 24, 3), ((Row(0, 70, 2),), (Row(70, 1, 2),), (Row(71, 5, 2),))
    ),
    "wide heads": Case(
        (1, 2, 128, 128, 4), ((Row(0, 67, 1),), (Row(67, 1, 1),), (Row(68, 66, 1),))
    ),
    "rows resume their slots beside others": Case(
        (2, 4, 16, 32, 4),
        (
            (Row(0, 3, 0), Row(0, 40, 1), Row(0, 1, 2)),
            (Row(3, 1, 0), Row(40, 1, 1), Row(1, 2, 2), Row(0, 90, 3)),
            (Row(4, 65, 0), Row(41, 2, 1), Row(3, 64, 2)),
        ),
    ),
    "a slot is used again": Case(SMALL, ((Row(0, 20, 5),), (Row(0, 2, 5),), (Row(0, 1, 5),))),
    "saves inside, at the end, and twice": Case(
        (1, 2, 16, 16, 4),
        (
            (Row(0, 100, 0, ((1, 4), (2, 5), (66, 6), (66, 7), (100, 8))), Row(0, 3, 1)),
            (Row(100, 1, 0, ((1, 4), (1, 5))), Row(3, 4, 1, ((1, 6), (3, 7)))),
            (Row(100, 3, 8), Row(2, 2, 5)),
        ),
    ),
    "rows without slots": Case(
        SMALL, ((Row(0, 1, -1), Row(0, 1, 2), Row(0, 9, -1), Row(0, 9, 1)),)
    ),
    "recorded steps are filled up": Case(
        (1, 2, 16, 16, 4),
        (
            (Row(0, 21, 0, ((16, 6),)), Row(0, 3, 1)),
            (Row(21, 1, 0, ((1, 7),)), Row(3, 1, 1), Row(0, 1, 2)),
            (Row(22, 70, 0), Row(1, 2, 2)),
        ),
        recorded=True,
    ),
    "keys alike": Case((1, 2, 32, 16, 4), ((Row(0, 200, 0),), (Row(200, 64, 0),)), alike=True),
}


@pytest.fixture(scope="module")
def interpreter() -> Iterator[ProcessPoolExecutor]:
    context = get_context("spawn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        pool = ProcessPoolExecutor(1, context)
        pool.submit(os.getpid).result()
    with pool:
        yield pool


@pytest.mark.parametrize("name", CASES)
def test_layers_are_as_on_numpy(interpreter: ProcessPoolExecutor, name: str) -> None:
    interpreter.submit(run, CASES[name]).result()


@pytest.mark.parametrize("sizes", [(4, 1, 256, 64), (2, 2, 64, 16), (3, 1, 48, 24)])
def test_heads_are_as_on_numpy(
    interpreter: ProcessPoolExecutor, sizes: tuple[int, int, int, int]
) -> None:
    interpreter.submit(heads.run, *sizes).result()
