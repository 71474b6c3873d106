"""What must not change an answer: chunks, batch mates, page size, page order, other work before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from pegainfer_core.contract import SamplingParams
from pegainfer_core.engine import PROMPT_TILE_ROWS
from pegainfer_core.testing.tiny import tiny_qwen3
from plugins.pegainfer_qwen3.tests.stepper import Stepper
from tests.hf import golden

if TYPE_CHECKING:
    from pathlib import Path

    from pegainfer_core.contract import TokenLogprobs
    from plugins.pegainfer_qwen3.tests.conftest import Checkpoints

#: Rounding of float32 sums in another order; the gate against transformers is looser.
TOLERANCE = 1e-4


def prompt(num_tokens: int, seed: int = 0) -> list[int]:
    return np.random.default_rng([num_tokens, seed]).integers(5, 1000, num_tokens).tolist()


@pytest.mark.parametrize("num_tokens", [1, 2, 15, 16, 17, 31, 32, 33, 48, 100])
def test_chunked_is_whole(num_tokens: int, checkpoints: Checkpoints) -> None:
    stepper = Stepper(checkpoints["gqa2"])
    whole = stepper.logits(prompt(num_tokens))
    for size in (1, 2, 7, 15, 16, 17, 32, 64):
        chunks = [size] * (num_tokens // size)
        chunked = stepper.logits(prompt(num_tokens), chunks)
        np.testing.assert_allclose(chunked, whole, atol=TOLERANCE, err_msg=f"chunks of {size}")
    uneven = stepper.logits(prompt(num_tokens), [1, 16, 3, 29, 17])
    np.testing.assert_allclose(uneven, whole, atol=TOLERANCE)


def test_a_long_prompt_resumes_far_from_its_start(tmp_path: Path) -> None:
    """Case N06: positions of a suffix count from the whole context."""
    model_dir = tiny_qwen3(tmp_path, layers=1, heads=(2, 1), seed=1)
    stepper = Stepper(model_dir, max_model_len=3072)
    ids = prompt(3000)
    steps = [250] * 11
    far = stepper.logits(ids, [*steps, 230])
    again = stepper.logits(ids, [*steps, 100, 130])
    np.testing.assert_allclose(again[2980:], far[2980:], atol=TOLERANCE)
    shifted = stepper.logits(ids[2980:])
    assert np.abs(shifted - far[2980:]).max() > 0.1, "the prefix matters"


@pytest.mark.parametrize("page_tokens", [16, 32, 64])
def test_page_size_changes_nothing(page_tokens: int, checkpoints: Checkpoints) -> None:
    stepper = Stepper(checkpoints["gqa2"], kv_page_size=page_tokens)
    expected = golden.load("gqa2").prompts[130]
    (tokens,) = stepper.generate([expected.prompt], 64, chunk_tokens=50)
    assert tokens == expected.greedy.tolist()


def test_c04_weights_survive_a_thousand_decode_rows(checkpoints: Checkpoints) -> None:
    stepper = Stepper(checkpoints["head_dim_32"])
    before = stepper.weights_digest()
    for _ in range(2):
        stepper.generate([prompt(n) for n in (1, 15, 16, 17, 60)], 100)
    assert stepper.weights_digest() == before


def test_stale_pages_do_not_reach_an_answer(checkpoints: Checkpoints) -> None:
    stepper = Stepper(checkpoints["gqa2"])
    expected = golden.load("gqa2").prompts[37]
    stored = stepper.kv.pages.storage
    assert isinstance(stored, np.ndarray)
    stored.fill(np.nan)
    (tokens,) = stepper.generate([expected.prompt], 64)
    assert tokens == expected.greedy.tolist()


def test_prompt_logprobs_are_those_of_the_logits(checkpoints: Checkpoints) -> None:
    """Over chunks, tiles, rows with and without them, and other requests' top-k."""
    stepper = Stepper(checkpoints["gqa2"])
    ids = prompt(300)
    params = [SamplingParams(temperature=0, prompt_logprobs=k) for k in (0, 3)]
    scored = [stepper.sequence(ids, 4, p) for p in params]
    plain = stepper.sequence(prompt(20), 4)
    collected: list[list[TokenLogprobs]] = [[], []]
    for counts in ((290, 100), (10, 200)):
        results = stepper.step([(plain, 1), *zip(scored, counts, strict=True)])
        assert results[0].prompt_logprobs is None
        for index in range(2):
            collected[index] += results[index + 1].prompt_logprobs or []
    assert 290 + 100 > PROMPT_TILE_ROWS
    logits = stepper.logits(ids, [150, 150]).astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    for entries, top_k in zip(collected, (0, 3), strict=True):
        assert len(entries) == 299
        for position, entry in enumerate(entries):
            row = logprobs[position]
            assert entry.logprob == pytest.approx(row[ids[position + 1]], abs=TOLERANCE)
            assert entry.top_token_ids == np.argsort(-row)[:top_k].tolist()
    assert all(sequence.num_generated == 1 for sequence in scored)


def test_prompt_logprobs_stop_at_the_prompt(checkpoints: Checkpoints) -> None:
    """A preempted request computes its answer's tokens again; they are not part of the prompt."""
    stepper = Stepper(checkpoints["gqa2"])
    sequence = stepper.sequence(prompt(20), 8, SamplingParams(temperature=0, prompt_logprobs=0))
    sequence.token_ids += [7, 8, 9]
    (result,) = stepper.step([(sequence, 23)])
    assert result.prompt_logprobs is not None
    assert len(result.prompt_logprobs) == 19
    again = stepper.sequence(prompt(20), 8, SamplingParams(temperature=0, prompt_logprobs=0))
    again.prompt_logprobs = None
    (result,) = stepper.step([(again, 20)])
    assert result.prompt_logprobs is None, "they were sent already"
