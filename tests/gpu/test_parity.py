"""Released sizes against transformers on the same GPU, on weights that no mistake survives.

The reference is a float32 run; the engine's error may be 1.5 times that of transformers' own
bfloat16 run, and the best token must be the same wherever its lead is well above that error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from pegainfer_core.backend import Tensor
    from tests.gpu.full_size import FullSize, Verdict

pytestmark = pytest.mark.gpu

#: Each takes another way through the products: one row, few, tensor cores by fours, cublasLt.
BATCHES = (1, 4, 16, 40, 64, 200)
Change = tuple[list["Tensor"], list["NDArray[np.float32]"]]


@pytest.fixture(scope="module", params=["0.6B", "4B"])
def full_size(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FullSize]:
    import torch

    from pegainfer_core.backend.cuda import CudaBackend
    from tests.gpu.full_size import FullSize

    made = FullSize(request.param, tmp_path_factory.mktemp("full"), CudaBackend())
    print(f"{request.param}: {made.config['num_hidden_layers']} layers")
    yield made
    torch.cuda.empty_cache()


def compare(model: FullSize, rows: list[int]) -> Verdict:
    from tests.gpu.full_size import judge

    verdict = judge(model.run(rows), [model.references[row] for row in rows], model.std)
    print(f"{len(rows)} rows: {verdict}")
    return verdict


@pytest.mark.parametrize("num_rows", BATCHES)
def test_decoding_agrees_with_transformers(full_size: FullSize, num_rows: int) -> None:
    verdict = compare(full_size, list(range(num_rows)))
    assert verdict.passed, verdict
    assert verdict.num_clear > 0


def test_long_prompts_agree_with_transformers(full_size: FullSize) -> None:
    from tests.gpu.full_size import LONG, MOST_ROWS

    verdict = compare(full_size, list(range(MOST_ROWS, MOST_ROWS + len(LONG))))
    assert verdict.passed, verdict


# ------------------------------------------------------------------ the gate has teeth


def no_rope(model: FullSize) -> Change:
    rope = model.stepper.model._rope
    return [rope.cos, rope.sin], [np.ones(1, np.float32), np.zeros(1, np.float32)]


def unit_head_norms(model: FullSize) -> Change:
    tensors = [layer.attention.head_norm for layer in model.stepper.weights.layers]
    return tensors, [np.ones(1, np.float32)] * len(tensors)


def no_attention_in_a_layer(model: FullSize) -> Change:
    layers = model.stepper.weights.layers
    return [layers[len(layers) // 2].attention.out], [np.zeros(1, np.float32)]


@pytest.mark.parametrize("mistake", [no_rope, unit_head_norms, no_attention_in_a_layer])
def test_a_mistake_does_not_pass(
    full_size: FullSize, mistake: Callable[[FullSize], Change]
) -> None:
    from tests.gpu.full_size import overwritten

    rows = list(range(16))
    with overwritten(full_size.backend, *mistake(full_size)):
        verdict = compare(full_size, rows)
    assert verdict.error > 2 * verdict.allowed, verdict
    assert compare(full_size, rows).passed
