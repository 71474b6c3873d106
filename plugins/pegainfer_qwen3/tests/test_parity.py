"""Logits and greedy tokens against transformers' runs of the same checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugins.pegainfer_qwen3.tests.stepper import Stepper
from tests.hf import cases, gate, golden

if TYPE_CHECKING:
    from plugins.pegainfer_qwen3.tests.conftest import Checkpoints

FLOAT32 = [name for name, arguments in cases.CASES.items() if arguments.get("dtype") is None]
BFLOAT16 = [name for name in cases.CASES if name not in FLOAT32]


@pytest.mark.parametrize("case", cases.CASES)
def test_logits_agree(case: str, checkpoints: Checkpoints) -> None:
    stepper = Stepper(checkpoints[case])
    expected = golden.load(case)
    assert golden.weights_digest(checkpoints[case]) == expected.weights_sha256
    for prompt in expected.prompts.values():
        result = gate.compare(stepper.logits(prompt.prompt), prompt)
        assert result.passed, result.faults


@pytest.mark.parametrize("case", FLOAT32)
def test_greedy_tokens_are_equal_alone_and_side_by_side(
    case: str, checkpoints: Checkpoints
) -> None:
    stepper = Stepper(checkpoints[case])
    prompts = list(golden.load(case).prompts.values())
    for prompt in prompts:
        (alone,) = stepper.generate([prompt.prompt], cases.NUM_GREEDY_TOKENS)
        result = gate.compare_greedy(alone, prompt)
        assert result.passed, result.faults
    mates = [prompts[i % len(prompts)].prompt for i in (1, 2, 0, 1, 2)]
    together = stepper.generate(
        [*(prompt.prompt for prompt in prompts), *mates], cases.NUM_GREEDY_TOKENS, chunk_tokens=100
    )
    for prompt, tokens in zip(prompts, together, strict=False):
        result = gate.compare_greedy(tokens, prompt)
        assert result.passed, result.faults
