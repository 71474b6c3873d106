"""What a step leaves behind."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from pegainfer_core.contract import SamplingParams
from pegainfer_core.testing.tiny import tiny_qwen3
from plugins.pegainfer_qwen3.tests.stepper import Stepper

if TYPE_CHECKING:
    from pathlib import Path

    from pegainfer_core.sampling import PendingTokens


def test_a_step_that_cannot_be_scored_fetches_no_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would read them, and a few unread results are all that a sampler has room for."""
    stepper = Stepper(tiny_qwen3(tmp_path, layers=1, heads=(2, 1), seed=1))
    sampler = stepper.runner._sampler
    fetch, fetched = sampler.fetch, []

    def watched() -> PendingTokens:
        fetched.append(fetch())
        return fetched[-1]

    def no_memory(*_: object) -> None:
        raise MemoryError("no room for scores")

    monkeypatch.setattr(sampler, "fetch", watched)
    params = SamplingParams(temperature=0, prompt_logprobs=0)
    first, second = (stepper.sequence(range(5, 25), params=params) for _ in range(2))
    with monkeypatch.context() as failing:
        failing.setattr(sampler, "score", no_memory)
        with pytest.raises(MemoryError, match="no room for scores"):
            stepper.step([(first, 20)])
    assert not fetched
    (result,) = stepper.step([(second, 20)])
    assert len(fetched) == 1
    assert len(result.prompt_logprobs or ()) == 19


def test_nothing_is_kept_of_a_sequence_that_ended(tmp_path: Path) -> None:
    """An idle engine would hold the ids of as many requests as ever ran at once."""
    stepper = Stepper(tiny_qwen3(tmp_path, layers=1, heads=(2, 1), seed=1))
    sequence = stepper.sequence(range(5, 25))
    for count in (20, 1, 1):
        stepper.step([(sequence, count)])
    stepper.release(sequence)
    ended = weakref.ref(sequence)
    del sequence
    gc.collect()
    assert ended() is None
