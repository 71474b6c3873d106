"""Qwen3.5's 0.8B shape against transformers on the same GPU, on weights that no mistake survives.

See `tests.hf.teacher_forced`; the same lines run on NumPy in `tests/hf`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.hf.qwen35_mistakes import MISTAKES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pegainfer_core.backend.cuda import CudaBackend
    from tests.hf.released_qwen35 import Released
    from tests.hf.teacher_forced import Change, TeacherForced

pytestmark = pytest.mark.gpu

#: Each takes another way through the products: one row, few, tensor cores by fours, cublasLt.
BATCHES = (1, 4, 16, 40, 64)
MOST_ROWS = max(BATCHES)
#: Taken in turn: inside a page, over pages, over one chunk of the delta rule and over several.
LENGTHS = (6, 21, 68, 130, 300)
LONG = (601, 1500, 2603)
FEW = range(16)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Released]:
    import torch

    from tests.hf.released_qwen35 import RELEASED, Released

    lengths = [LENGTHS[i % len(LENGTHS)] for i in range(MOST_ROWS)] + list(LONG)
    yield Released(tmp_path_factory.mktemp("0.8B") / "m", RELEASED, lengths, "cuda")
    torch.cuda.empty_cache()


@pytest.fixture(scope="module")
def backend(released: Released) -> CudaBackend:
    """Made when transformers has what it computed in behind it."""
    import torch

    from pegainfer_core.backend.cuda import CudaBackend

    torch.cuda.empty_cache()
    return CudaBackend()


@pytest.fixture(scope="module")
def bfloat16(released: Released, backend: CudaBackend) -> TeacherForced:
    return released.run_on(backend, "bfloat16")


@pytest.mark.parametrize("num_rows", BATCHES)
def test_decoding_agrees_with_transformers(num_rows: int, bfloat16: TeacherForced) -> None:
    verdict = bfloat16.compare(range(num_rows))
    assert verdict.passed, verdict
    assert verdict.num_clear > 0


def test_long_prompts_agree_with_transformers(bfloat16: TeacherForced) -> None:
    verdict = bfloat16.compare(range(MOST_ROWS, MOST_ROWS + len(LONG)))
    assert verdict.passed, verdict


def test_float32_agrees_to_the_token(released: Released, backend: CudaBackend) -> None:
    model = released.run_on(backend, "float32")
    for rows in (range(MOST_ROWS), range(MOST_ROWS, MOST_ROWS + len(LONG))):
        verdict = model.compare(rows)
        assert verdict.exact, verdict


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_does_not_pass(
    mistake: Callable[[TeacherForced], Change], bfloat16: TeacherForced
) -> None:
    bfloat16.expect_refused(mistake(bfloat16), FEW)
