"""The sample checkpoints on CUDA: what NumPy writes, as far as rounding does not decide."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from tokenizers import Tokenizer

from plugins.pegainfer_qwen3.tests.stepper import Stepper as Qwen3Stepper
from plugins.pegainfer_qwen35.tests.stepper import Stepper as Qwen35Stepper
from tests.hf.golden import top2

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.stepper import DecoderStepper

pytestmark = pytest.mark.gpu

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
STEPPERS: dict[str, type[DecoderStepper]] = {"qwen3": Qwen3Stepper, "qwen35": Qwen35Stepper}
NUM_TOKENS = 96
#: Two tokens closer than this, in nats, may change places by rounding.
CLOSE = 0.25
#: Tokens written from each start.
SPAN = 24
MOST_AT_ONCE = 32
PROMPTS = (
    "The state of the Union is",
    "Call me Ishmael. Some years ago",
    "It was a dark night, and the ship",
    "The white whale",
    "It is the duty of the Government to",
    "Hamlet: What is the matter,",
    "We will work together for",
    "Once more",
)


class Answer(NamedTuple):
    """What NumPy wrote, and the lead of each token over the second best."""

    prompt: list[int]
    token_ids: list[int]
    gap: NDArray[np.float32]


@pytest.fixture(scope="module", params=STEPPERS)
def family(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def answers(family: str) -> list[Answer]:
    folder = SAMPLES / f"{family}-sample"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    stepper = STEPPERS[family](folder)
    prompts = [tokenizer.encode(text).ids for text in PROMPTS]
    made = []
    for prompt, token_ids in zip(prompts, stepper.generate(prompts, NUM_TOKENS), strict=True):
        logits = stepper.logits([*prompt, *token_ids[:-1]])[len(prompt) - 1 :]
        made.append(Answer(prompt, token_ids, top2(logits)[1]))
    return made


@pytest.fixture(scope="module")
def stepper(family: str) -> DecoderStepper:
    from pegainfer_core.backend.cuda import CudaBackend

    folder = SAMPLES / f"{family}-sample"
    return STEPPERS[family](folder, backend=CudaBackend(), num_kv_pages=1024)


def test_greedy_text_is_the_same_until_two_tokens_are_close(
    answers: list[Answer], stepper: DecoderStepper
) -> None:
    """From the prompt, and again from behind every position where two were close."""
    starts = [(answer, start) for answer in answers for start in _starts(answer)]
    prompts = [[*answer.prompt, *answer.token_ids[:start]] for answer, start in starts]
    num_compared = 0
    for first in range(0, len(starts), MOST_AT_ONCE):
        part = slice(first, first + MOST_AT_ONCE)
        written = stepper.generate(prompts[part], SPAN)
        for (answer, start), token_ids in zip(starts[part], written, strict=True):
            close = np.flatnonzero(answer.gap[start : start + SPAN] < CLOSE)
            end = int(close[0]) if close.size else min(SPAN, NUM_TOKENS - start)
            assert token_ids[:end] == answer.token_ids[start : start + end]
            num_compared += end
    assert num_compared >= len(answers) * NUM_TOKENS // 2


def _starts(answer: Answer) -> list[int]:
    behind_close = (np.flatnonzero(answer.gap < CLOSE) + 1).tolist()
    return [start for start in (0, *behind_close) if start < NUM_TOKENS]


def test_along_the_same_text_the_best_token_is_the_same_unless_two_are_close(
    answers: list[Answer], stepper: DecoderStepper
) -> None:
    num_compared = 0
    for answer in answers:
        logits = stepper.logits([*answer.prompt, *answer.token_ids[:-1]])
        best = logits[len(answer.prompt) - 1 :].argmax(axis=-1)
        clear = answer.gap >= CLOSE
        np.testing.assert_array_equal(best[clear], np.array(answer.token_ids)[clear])
        num_compared += int(clear.sum())
    assert num_compared >= len(answers) * NUM_TOKENS // 2
