"""Kernels of hybrid models and of choices against NumPy where no GPU is: an interpreter runs them.

In a process of its own, for Triton is told at its import that it interprets.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.kernels.interpreted import choices, heads
from tests.kernels.interpreted.delta import Case, Row, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

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
    "wide heads": Case((1, 2, 128, 128, 4), ((Row(0, 67, 1),), (Row(67, 1, 1),))),
    "rows resume their slots beside others": Case(
        (1, 2, 16, 32, 4),
        (
            (Row(0, 3, 0), Row(0, 40, 1), Row(0, 1, 2)),
            (Row(3, 1, 0), Row(40, 1, 1), Row(1, 2, 2), Row(0, 70, 3)),
            (Row(4, 65, 0), Row(41, 2, 1)),
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
    "keys alike": Case((1, 2, 32, 16, 4), ((Row(0, 100, 0),), (Row(100, 64, 0),)), alike=True),
}


CHOICES = ((97, False), (97, True), (5000, False), (5000, True))
HEADS = ((4, 1, 256, 64), (2, 2, 64, 16), (3, 1, 48, 24))
_PROCESSES = 2


class Interpreter(NamedTuple):
    """What was started of all that these tests wait for."""

    layers: dict[str, Future[None]]
    heads: dict[tuple[int, ...], Future[None]]
    choices: dict[tuple[int, bool], Future[None]]


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    pool = ProcessPoolExecutor(_PROCESSES, get_context("spawn"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        # Processes start as work comes.
        layers = {name: pool.submit(run, case) for name, case in CASES.items()}
        sizes = {each: pool.submit(heads.run, *each) for each in HEADS}
        chosen = {each: pool.submit(choices.run, *each) for each in CHOICES}
    yield Interpreter(layers, sizes, chosen)
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", CASES)
def test_layers_are_as_on_numpy(interpreter: Interpreter, name: str) -> None:
    interpreter.layers[name].result()


@pytest.mark.parametrize("sizes", HEADS)
def test_heads_are_as_on_numpy(interpreter: Interpreter, sizes: tuple[int, ...]) -> None:
    interpreter.heads[sizes].result()


@pytest.mark.parametrize(("vocab", "broken"), CHOICES)
def test_choices_are_the_hosts(interpreter: Interpreter, vocab: int, broken: bool) -> None:
    interpreter.choices[vocab, broken].result()
