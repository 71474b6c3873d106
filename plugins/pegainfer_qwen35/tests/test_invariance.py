"""What must not change an answer: chunks, batch mates, page size, what a slot held before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pegainfer_core.engine import Row, Sequence, StateRestore, StateSave, StepPlan
from plugins.pegainfer_qwen35.tests.conftest import Checkpoint
from plugins.pegainfer_qwen35.tests.stepper import Stepper
from tests.hf import golden

#: Rounding of float32 sums in another order; the gate against transformers is looser.
TOLERANCE = 1e-4


def prompt(num_tokens: int, seed: int = 0) -> list[int]:
    return np.random.default_rng([num_tokens, seed]).integers(5, 300, num_tokens).tolist()


@pytest.mark.parametrize("num_tokens", [1, 2, 3, 63, 64, 65, 130, 1041])
def test_chunked_is_whole(num_tokens: int, small: Path) -> None:
    stepper = Stepper(small, max_model_len=2048)
    whole = stepper.logits(prompt(num_tokens))
    for size in (1, 63, 64, 65, 1000):
        chunked = stepper.logits(prompt(num_tokens), [size] * (num_tokens // size))
        np.testing.assert_allclose(chunked, whole, atol=TOLERANCE, err_msg=f"chunks of {size}")
    uneven = stepper.logits(prompt(num_tokens), [1, 16, 3, 2, 1, 29, 17])
    np.testing.assert_allclose(uneven, whole, atol=TOLERANCE)


def test_no_drift_over_four_thousand_tokens(small: Path) -> None:
    """Token by token the state has been rounded 4,096 times, in chunks 64 times less."""
    stepper = Stepper(small, max_model_len=4200)
    ids = prompt(4096)
    chunked = stepper.logits(ids, [1000] * 4)
    single = stepper.logits(ids, [2000 // 2] * 2 + [1] * 2096)
    np.testing.assert_allclose(single[-100:], chunked[-100:], atol=3 * TOLERANCE)
    fresh = stepper.logits(ids[-100:])
    assert np.abs(fresh - chunked[-100:]).max() > 0.1, "the prefix matters"


@pytest.mark.parametrize("page_tokens", [16, 32, 64])
def test_page_size_changes_nothing(page_tokens: int, checkpoint: Checkpoint) -> None:
    stepper = Stepper(checkpoint("qwen35_ratio2"), kv_page_size=page_tokens)
    expected = golden.load("qwen35_ratio2").prompts[130]
    (tokens,) = stepper.generate([expected.prompt], 64, chunk_tokens=50)
    assert tokens == expected.greedy.tolist()


def test_what_memory_held_before_does_not_reach_an_answer(checkpoint: Checkpoint) -> None:
    stepper = Stepper(checkpoint("qwen35_ratio2"))
    for tensor in (stepper.kv.pages, stepper.states.memory, stepper.states.conv):
        assert isinstance(tensor.storage, np.ndarray)
        tensor.storage.fill(np.nan)
    prompts = golden.load("qwen35_ratio2").prompts
    for length in (37, 5, 130, 5):
        expected = prompts[length]
        (tokens,) = stepper.generate([expected.prompt], 64)
        assert tokens == expected.greedy.tolist(), "a slot was not clean"


def test_equal_steps_are_bit_equal(checkpoint: Checkpoint) -> None:
    for case in ("qwen35_ratio2", "qwen35_bf16"):
        stepper = Stepper(checkpoint(case))
        first = stepper.logits(prompt(100), [70, 1, 1])
        np.testing.assert_array_equal(stepper.logits(prompt(100), [70, 1, 1]), first)


@pytest.mark.parametrize("case", ["qwen35_ratio3", "qwen35_bf16"])
def test_a_saved_state_goes_on_as_its_owner_did(case: str, checkpoint: Checkpoint) -> None:
    """Saved in the midst of a chunk, restored into another slot, while its owner went further."""
    stepper = Stepper(checkpoint(case))
    ids, slot = prompt(120), stepper.plan.max_num_seqs + 2
    owner, mate = stepper.sequence(ids, 16), stepper.sequence(prompt(20, seed=1), 16)
    rows = [Row(mate, 0, 20, True), Row(owner, 0, 120, True)]
    results = stepper.runner.launch(StepPlan(rows, 0, saves=(StateSave(1, 80, slot),))).results()
    for row, result in zip(rows, results, strict=True):
        row.sequence.num_computed = row.num_tokens
        assert result.token_id is not None
        row.sequence.token_ids.append(result.token_id)
    heir = stepper.sequence(ids, 16)
    heir.page_ids[:5] = owner.page_ids[:5]
    plan = StepPlan([Row(heir, 80, 40, True)], 0, restores=(StateRestore(slot, heir.slot),))
    (result,) = stepper.runner.launch(plan).results()
    heir.num_computed = 120
    assert result.token_id is not None
    heir.token_ids.append(result.token_id)
    for _ in range(10):
        stepper.step([(owner, 1), (heir, 1)])
    assert heir.token_ids == owner.token_ids


def test_a_row_of_many_saves_leaves_them_all(checkpoint: Checkpoint) -> None:
    stepper = Stepper(checkpoint("qwen35_ratio2"))
    ids, first = prompt(96), stepper.plan.max_num_seqs
    whole: Sequence = stepper.sequence(ids, 16)
    saves = tuple(StateSave(0, end, first + i) for i, end in enumerate((16, 32, 95, 96)))
    stepper.runner.launch(StepPlan([Row(whole, 0, 96, True)], 0, saves=saves)).results()
    for index, end in enumerate((16, 32, 95, 96)):
        alone = stepper.sequence(ids, 16)
        stepper.runner.launch(StepPlan([Row(alone, 0, end, end == 96)], 0)).results()
        for part in (stepper.states.memory, stepper.states.conv):
            stored = part.storage
            assert isinstance(stored, np.ndarray)
            np.testing.assert_allclose(stored[first + index], stored[alone.slot], atol=TOLERANCE)
