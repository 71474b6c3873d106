"""Released sizes against transformers on the same GPU, on weights that no mistake survives.

See `tests.hf.teacher_forced`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.hf.teacher_forced import Change, TeacherForced

pytestmark = pytest.mark.gpu

#: Each takes another way through the products: one row, few, tensor cores by fours, cublasLt.
BATCHES = (1, 4, 16, 40, 64, 200)


@pytest.fixture(scope="module", params=["0.6B", "4B"])
def full_size(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TeacherForced]:
    import torch

    from pegainfer_core.backend.cuda import CudaBackend
    from tests.gpu.full_size import full_size

    made = full_size(request.param, tmp_path_factory.mktemp("full"), CudaBackend())
    print(f"{request.param}: {len(made.stepper.weights.layers)} layers")
    yield made
    torch.cuda.empty_cache()


@pytest.mark.parametrize("num_rows", BATCHES)
def test_decoding_agrees_with_transformers(full_size: TeacherForced, num_rows: int) -> None:
    verdict = full_size.compare(range(num_rows))
    assert verdict.passed, verdict
    assert verdict.num_clear > 0


def test_long_prompts_agree_with_transformers(full_size: TeacherForced) -> None:
    from tests.gpu.full_size import LONG, MOST_ROWS

    verdict = full_size.compare(range(MOST_ROWS, MOST_ROWS + len(LONG)))
    assert verdict.passed, verdict


# ------------------------------------------------------------------ the gate has teeth


def no_rope(model: TeacherForced) -> Change:
    rope = model.stepper.model._rope
    return [rope.cos, rope.sin], [np.ones(1, np.float32), np.zeros(1, np.float32)]


def unit_head_norms(model: TeacherForced) -> Change:
    tensors = [layer.attention.head_norm for layer in model.stepper.weights.layers]
    return tensors, [np.ones(1, np.float32)] * len(tensors)


def no_attention_in_a_layer(model: TeacherForced) -> Change:
    layers = model.stepper.weights.layers
    return [layers[len(layers) // 2].attention.out], [np.zeros(1, np.float32)]


@pytest.mark.parametrize("mistake", [no_rope, unit_head_norms, no_attention_in_a_layer])
def test_a_mistake_does_not_pass(
    full_size: TeacherForced, mistake: Callable[[TeacherForced], Change]
) -> None:
    full_size.expect_refused(mistake(full_size), range(16))
