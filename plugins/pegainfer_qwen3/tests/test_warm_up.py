"""The steps that a runner runs before the first request stay inside what real steps may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pegainfer_core.backend import NumpyBackend
from pegainfer_core.backend.cuda.step_shape import StepShape, prompt_sizes, step_shape
from pegainfer_core.testing.tiny import tiny_qwen3
from plugins.pegainfer_qwen3.tests.stepper import Stepper

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pegainfer_core.backend import Batch


class RecordingBackend(NumpyBackend):
    """Asks for the warm-up of prompts that a GPU asks for.

    Attributes:
        shapes: Of the prompts it was given to run.
    """

    def __init__(self, max_model_len: int) -> None:
        super().__init__()
        self.shapes: list[StepShape | None] = []
        self._max_model_len = max_model_len

    def recorded_prompts(self, max_tokens: int) -> list[int]:
        return prompt_sizes(max_tokens)

    def run(self, batch: Batch, work: Callable[[Batch], None]) -> None:
        metadata = batch.metadata
        assert metadata.context_lens[: metadata.num_rows].max() <= self._max_model_len
        self.shapes.append(step_shape(metadata))
        super().run(batch, work)


@pytest.mark.parametrize(
    ("max_model_len", "max_num_seqs", "sizes"),
    [
        (512, 4, (16, 32, 64, 128, 256, 512)),
        (200, 4, (16, 32, 64, 128, 256, 512)),
        (100, 1, (16, 32, 64, 128)),
        (40, 3, (16, 32, 64, 128)),
    ],
)
def test_prompts_fit_the_context(
    max_model_len: int, max_num_seqs: int, sizes: tuple[int, ...], tmp_path: Path
) -> None:
    """Every size that requests can reach is run twice, in rows no longer than a request."""
    backend = RecordingBackend(max_model_len)
    model_dir = tiny_qwen3(tmp_path, layers=1, heads=(2, 1), seed=1)
    limits = {"max_model_len": max_model_len, "max_num_seqs": max_num_seqs, "num_kv_pages": 64}
    Stepper(model_dir, backend=backend, **limits)
    found = {shape for shape in backend.shapes if backend.shapes.count(shape) >= 2}
    assert found == {StepShape(size, 0, 1) for size in sizes}
