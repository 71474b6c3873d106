"""Which steps are filled up to a recorded shape."""

from __future__ import annotations

import numpy as np
import pytest

from pegainfer_core.backend import StepMetadata
from pegainfer_core.backend.cuda.step_shape import MAX_PROMPT_ROWS, StepShape, step_shape

PAGES = list(range(1, 80))


def metadata(max_tokens: int = 1024, max_rows: int = 64) -> StepMetadata:
    return StepMetadata(max_tokens, max_rows, max_pages=8192, page_tokens=16)


def decoding(count: int, max_rows: int = 64) -> StepMetadata:
    made = metadata(max_rows=max_rows)
    table = np.array(PAGES, np.int32)
    made.add_decode_rows([1] * count, [5] * count, [table] * count, list(range(count)))
    made.finish(count)
    return made


def prompts(*counts: int, samples: bool = True, scored: int = 0) -> StepMetadata:
    made = metadata()
    for count in counts:
        made.add_row([1] * count, 3, PAGES, samples=samples, num_prompt_logits=scored)
    made.finish(0)
    return made


@pytest.mark.parametrize(
    ("count", "max_rows", "size"), [(1, 64, 1), (3, 64, 4), (64, 64, 64), (33, 40, 40), (9, 12, 12)]
)
def test_decoding_rows(count: int, max_rows: int, size: int) -> None:
    assert step_shape(decoding(count, max_rows)) == StepShape(size, size, size)


@pytest.mark.parametrize(
    ("counts", "shape"),
    [
        ((2,), StepShape(16, 0, 1)),
        ((16,), StepShape(16, 0, 1)),
        ((17,), StepShape(32, 0, 1)),
        ((500,), StepShape(512, 0, 1)),
        ((10, 20, 30), StepShape(64, 0, 8)),
        ((2,) * MAX_PROMPT_ROWS, StepShape(16, 0, 8)),
        ((2,) * (MAX_PROMPT_ROWS + 1), None),
        ((513,), None),
    ],
)
def test_short_prompts(counts: tuple[int, ...], shape: StepShape | None) -> None:
    assert step_shape(prompts(*counts)) == shape


def test_steps_with_adapters_have_shapes_of_their_own() -> None:
    made = decoding(3)
    assert not made.num_adapted
    for _ in range(2):
        made.clear()
        table = np.array(PAGES, np.int32)
        made.add_decode_rows([1] * 3, [5] * 3, [table] * 3, [0, 1, 2], [-1, 4, -1])
        made.finish(3)
        assert made.num_adapted == 1
        assert step_shape(made) == StepShape(4, 4, 4, adapted=True)
        made.clear()
        made.add_row([1] * 20, 3, PAGES, samples=True, adapter=0)
        made.finish(0)
        assert step_shape(made) == StepShape(32, 0, 1, adapted=True)
        made.clear()
        made.add_decode_rows([1] * 3, [5] * 3, [table] * 3, [0, 1, 2], [-1] * 3)
        made.finish(3)
        assert (made.row_adapters == -1).all()
        assert step_shape(made) == StepShape(4, 4, 4)


def test_a_chunk_that_chooses_nothing_is_filled_up_too() -> None:
    assert step_shape(prompts(20, samples=False)) == StepShape(32, 0, 1)


def test_scored_prompts_and_mixed_steps_run_as_they_are() -> None:
    assert step_shape(prompts(20, scored=4)) is None
    mixed = decoding(2)
    mixed.add_row([1, 2], 0, PAGES, samples=True)
    mixed.finish(2)
    assert step_shape(mixed) is None


def test_no_shape_exceeds_the_limits_of_a_step() -> None:
    made = metadata(max_tokens=40, max_rows=4)
    made.add_row([1] * 33, 0, PAGES, samples=True)
    made.finish(0)
    assert step_shape(made) is None
    made.clear()
    for _ in range(3):
        made.add_row([1, 2], 0, PAGES, samples=True)
    made.finish(0)
    assert step_shape(made) is None
