"""Logits and greedy tokens against transformers' runs of the same checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugins.pegainfer_qwen35.tests.stepper import Stepper
from tests.hf import gate, golden
from tests.hf.cases import NUM_GREEDY_TOKENS, QWEN35_CASES

if TYPE_CHECKING:
    from plugins.pegainfer_qwen35.tests.conftest import Checkpoint

FLOAT32 = [name for name, arguments in QWEN35_CASES.items() if "dtype" not in arguments]


@pytest.mark.parametrize("case", QWEN35_CASES)
def test_logits_agree(case: str, checkpoint: Checkpoint) -> None:
    stepper = Stepper(checkpoint(case))
    for prompt in golden.load(case).prompts.values():
        for chunks in ((), (70, 1, 33)):
            result = gate.compare(stepper.logits(prompt.prompt, chunks), prompt)
            assert result.passed, result.faults


@pytest.mark.parametrize("case", FLOAT32)
def test_greedy_tokens_are_equal_alone_and_side_by_side(case: str, checkpoint: Checkpoint) -> None:
    stepper = Stepper(checkpoint(case))
    prompts = list(golden.load(case).prompts.values())
    for prompt in prompts:
        (alone,) = stepper.generate([prompt.prompt], NUM_GREEDY_TOKENS)
        result = gate.compare_greedy(alone, prompt)
        assert result.passed, result.faults
    mates = [prompts[i].prompt for i in (1, 2, 0, 1, 2)]
    together = stepper.generate(
        [*(prompt.prompt for prompt in prompts), *mates], NUM_GREEDY_TOKENS, chunk_tokens=100
    )
    for prompt, tokens in zip(prompts, together, strict=False):
        result = gate.compare_greedy(tokens, prompt)
        assert result.passed, result.faults
