"""The kernels of adapters against NumPy where no GPU is: Triton's interpreter runs them."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

import pytest

from tests.kernels.interpreted import lora_layer
from tests.kernels.interpreted.lora import Case, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

# Runs where Triton is, with what `make test-kernels` installs; it never touches a GPU.
pytestmark = pytest.mark.gpu

CASES = {
    "decoding rows, adapters in turn": Case(
        128, (64, 32, 32), 16, (4, 16), (((1, 0), (1, -1), (1, 1), (1, 0), (1, -1)),)
    ),
    "more rows of one adapter than a tile holds": Case(
        64, (48,), 16, (5,), (((1, 0),) * 21, ((1, 0),) * 16, ((1, 0),) * 17)
    ),
    "prompts of several lengths beside decoding rows": Case(
        200, (80, 16, 16), 32, (17, 0, 32), (((1, 2), (1, 1), (33, 0), (5, -1), (40, 2), (3, 1)),)
    ),
    "wide inputs, ranks beyond one block, two parts": Case(
        1100, (100, 100), 64, (40, 64), (((1, 1), (1, 0), (20, 1)),)
    ),
    "inputs in sixteen shares, and one of them empty": Case(
        9000, (64,), 16, (4, 16), (((1, 1), (3, 0)),)
    ),
    "recorded steps are filled up": Case(
        64,
        (64, 64),
        16,
        (8, 0, 3),
        (((1, 0), (1, -1), (1, 2)), ((9, 2), (8, -1), (4, 0)), ((1, 2),)),
        recorded=True,
    ),
}


#: One row takes our own product, more the library's.
LAYERS = {
    "a layer, one row": ((1, 1),),
    "a layer, rows in turn and a prompt": ((1, 0), (1, -1), (1, 2), (18, 1)),
}


@pytest.fixture(scope="module")
def interpreted() -> Iterator[dict[str, Future[None]]]:
    """In processes of their own, for Triton is told at its import that it interprets."""
    pool = ProcessPoolExecutor(2, get_context("spawn"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        begun = {name: pool.submit(run, case) for name, case in CASES.items()}
        begun |= {name: pool.submit(lora_layer.run, rows) for name, rows in LAYERS.items()}
    yield begun
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", [*CASES, *LAYERS])
def test_sums_are_as_on_numpy(interpreted: dict[str, Future[None]], name: str) -> None:
    interpreted[name].result()
