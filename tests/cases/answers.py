"""Answers as numbers: compared with each other, and with the logits of a reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pegainfer_core.contract import SamplingParams, TokenLogprobs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core import LLM
    from pegainfer_core.llm import RequestOutput
    from pegainfer_core.testing.conformance.transcript import Transcript

#: Rounding of float32 sums in another order.
TOLERANCE = 1e-4


def greedy(max_tokens: int, **fields: object) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, **fields)


def run(
    llm: LLM,
    prompts: str | Sequence[int] | Sequence[str | Sequence[int]],
    params: SamplingParams | Sequence[SamplingParams],
) -> list[RequestOutput]:
    return llm.generate(prompts, params, use_tqdm=False)


def score_prompt(llm: LLM, prompt: Sequence[int]) -> list[TokenLogprobs]:
    """Log-probabilities at every position of a prompt but the first, with 20 alternatives."""
    (output,) = run(llm, [list(prompt)], greedy(1, prompt_logprobs=20))
    scores = output.prompt_logprobs
    assert scores is not None and scores[0] is None and len(scores) == len(prompt)
    return [entry for entry in scores if entry is not None]


def assert_close(
    ours: Sequence[TokenLogprobs], theirs: Sequence[TokenLogprobs], tolerance: float = TOLERANCE
) -> None:
    """The same tokens in the same order, with log-probabilities that differ by rounding only."""
    assert [e.top_token_ids for e in ours] == [e.top_token_ids for e in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=tolerance)
        assert one.top_logprobs == pytest.approx(other.top_logprobs, abs=tolerance)


def assert_same(ours: Transcript, theirs: Transcript, tolerance: float = TOLERANCE) -> None:
    """The same answer, whatever was shared, cached or computed beside it."""
    assert ours.token_ids == theirs.token_ids
    assert ours.finished.reason is theirs.finished.reason
    assert_close(ours.logprobs, theirs.logprobs, tolerance)


def assert_from_logits(
    entry: TokenLogprobs, logits: NDArray[np.floating], tolerance: float = 2e-4
) -> None:
    """An entry is the log-softmax of one row of reference logits."""
    expected = log_softmax(logits)
    assert np.abs(expected[entry.top_token_ids] - entry.top_logprobs).max() <= tolerance
    best = np.sort(expected)[::-1][: len(entry.top_token_ids)]
    assert np.abs(best - entry.top_logprobs).max() <= tolerance


def log_softmax(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """Over the last axis, in float64."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))
