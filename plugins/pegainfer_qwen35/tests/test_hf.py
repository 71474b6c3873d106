"""Against live transformers: long prompts, and other lengths than the goldens'."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from plugins.pegainfer_qwen35.tests.stepper import Stepper
from plugins.pegainfer_qwen35.tests.test_invariance import prompt

if TYPE_CHECKING:
    from pathlib import Path

    from plugins.pegainfer_qwen35.tests.conftest import Checkpoint

pytestmark = pytest.mark.hf


def test_no_drift_over_four_thousand_tokens(small: Path) -> None:
    """Prompt in chunks, then token by token; transformers computes it whole, then goes on too."""
    from tests.hf.transformers_run import TransformersModel

    theirs, ours = TransformersModel(small), Stepper(small, max_model_len=4300)
    ids = prompt(4096)
    expected = theirs.logits(np.array(ids))
    actual = ours.logits(ids, [1000, 63, 1000, 900, *[1] * 500])
    np.testing.assert_allclose(actual, expected, rtol=0, atol=5e-4)
    (tokens,), (leads,) = theirs.greedy([np.array(ids, np.int32)], 64)
    (answer,) = ours.generate([ids], 64, chunk_tokens=1000)
    sure = int(np.argmax(leads < 1e-3)) if (leads < 1e-3).any() else 64
    assert sure >= 32
    assert answer[:sure] == tokens[:sure].tolist()


@pytest.mark.parametrize("case", ["qwen35_ratio1", "qwen35_ratio4", "qwen35_nested"])
def test_every_length_around_the_chunks(case: str, checkpoint: Checkpoint) -> None:
    from tests.hf.transformers_run import TransformersModel

    theirs, ours = TransformersModel(checkpoint(case)), Stepper(checkpoint(case))
    for num_tokens in (1, 2, 3, 4, 15, 16, 17, 63, 64, 65, 127, 129, 200):
        ids = prompt(num_tokens)
        expected = theirs.logits(np.array(ids))
        np.testing.assert_allclose(ours.logits(ids), expected, rtol=0, atol=3e-4)
