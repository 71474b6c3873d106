"""What `tests/gpu` does at released sizes, on NumPy and small: the comparison and its teeth.

Only sizes, the number of texts and the device differ there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.hf.qwen35_mistakes import MISTAKES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.hf.released_qwen35 import Released
    from tests.hf.teacher_forced import Change, TeacherForced

pytestmark = pytest.mark.hf

#: Inside a page, over a chunk of the delta rule, over two.
LENGTHS = (21, 68, 130, 68)
ALL = range(len(LENGTHS))


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Released:
    from tests.hf.released_qwen35 import NARROW, Released

    return Released(tmp_path_factory.mktemp("narrow") / "m", NARROW, LENGTHS, "cpu")


@pytest.fixture(scope="module")
def bfloat16(released: Released) -> TeacherForced:
    return released.run_on(None, "bfloat16")


def test_bfloat16_agrees(bfloat16: TeacherForced) -> None:
    verdict = bfloat16.compare(ALL)
    assert verdict.passed, verdict
    assert verdict.num_clear > 0


def test_float32_agrees_to_the_token(released: Released) -> None:
    verdict = released.run_on(None, "float32").compare(ALL)
    assert verdict.exact, verdict


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_does_not_pass(
    mistake: Callable[[TeacherForced], Change], bfloat16: TeacherForced
) -> None:
    bfloat16.expect_refused(mistake(bfloat16), ALL)


def test_bfloat16_does_not_pass_for_float32(bfloat16: TeacherForced) -> None:
    assert not bfloat16.compare(ALL).exact


def test_other_tokens_do_not_pass(bfloat16: TeacherForced) -> None:
    """The rule of best tokens alone: logits near enough, two of them exchanged."""
    from tests.hf.teacher_forced import judge

    found = np.concatenate([made.logits.numpy() for made in bfloat16.references])
    best = found.argsort(axis=-1)[:, -2:]
    lead = found.max(axis=-1) - np.take_along_axis(found, best[:, :1], axis=-1)[:, 0]
    row = int(lead.argmax())
    found[row, best[row]] = found[row, best[row][::-1]]
    import torch

    verdict = judge(torch.from_numpy(found), bfloat16.references, bfloat16.std)
    assert verdict.error <= verdict.allowed
    assert verdict.num_other == 1
    assert not verdict.passed
