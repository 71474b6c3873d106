"""Log-probabilities of prompts, computed where their logits lie: equal to the host's, and small."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pegainfer_core import LLM
from pegainfer_core.backend import DType
from pegainfer_core.contract import SamplingParams
from pegainfer_core.sampling import choice_words as place
from pegainfer_core.sampling import row_logprobs
from pegainfer_core.sampling.device_step_sampler import report_logprobs
from pegainfer_core.testing.tiny import tiny_qwen3
from tests.gpu.choices import LOGPROB_TOLERANCE, Choices

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda import CudaBackend

pytestmark = pytest.mark.gpu

VOCAB = 151_936
LONG_TOKENS = 16_000
MOST_BYTES = 200_000_000


def test_given_tokens(cuda: CudaBackend) -> None:
    """More rows than ever choose at once, with ties, NaN and every number of alternatives."""
    from pegainfer_core.backend.cuda.arrays import address

    choices = Choices(cuda, VOCAB, max_rows=26)
    logits = 3 * choices.random.standard_normal((70, VOCAB), np.float32)
    logits[5] = np.round(logits[5])
    logits[6, VOCAB - 1] = np.nan
    logits[7] = -np.inf
    token_ids = choices.random.integers(0, VOCAB, len(logits)).astype(np.int32)
    top_ks = [index % 21 for index in range(len(logits))]
    words = np.zeros((len(logits), choices.choice.num_words), np.int32)
    words[:, place.NUM_LOGPROBS] = np.array(top_ks) + 1
    held = cuda.adopt(logits.copy(), DType.FLOAT32)
    reports = choices.choice.score_rows(address(held), token_ids, words)
    expected = [
        row_logprobs(row[None], [token_id], top_k)[0]
        for row, token_id, top_k in zip(logits, token_ids.tolist(), top_ks, strict=True)
    ]
    for report, wanted, top_k in zip(reports, expected, top_ks, strict=True):
        found = report_logprobs(report, top_k)
        assert (found.rank, found.top_token_ids) == (wanted.rank, wanted.top_token_ids)
        values, others = ([each.logprob, *each.top_logprobs] for each in (found, wanted))
        assert values == pytest.approx(others, abs=LOGPROB_TOLERANCE, nan_ok=True)


def scored(folder: Path, backend: str, prompt: list[int]) -> list[float]:
    params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=5)
    with LLM(folder, backend=backend, max_num_seqs=8, num_kv_pages=1200) as llm:
        (output,) = llm.generate(prompt, params, use_tqdm=False)
    assert output.prompt_logprobs is not None and output.prompt_logprobs[0] is None
    return [entry.logprob for entry in output.prompt_logprobs if entry is not None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("scores") / "m"
    return tiny_qwen3(made, vocab=VOCAB, max_position_embeddings=LONG_TOKENS + 64)


def test_prompts_in_chunks(folder: Path) -> None:
    prompt = np.random.default_rng(3).integers(0, 256, 700).tolist()
    found, expected = (scored(folder, backend, prompt) for backend in ("cuda", "numpy"))
    assert len(found) == len(prompt) - 1
    assert found == pytest.approx(expected, abs=1e-3)


def test_a_long_prompt_takes_little_memory(folder: Path) -> None:
    import cupy

    prompt = np.random.default_rng(4).integers(0, 256, LONG_TOKENS).tolist()
    params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=5, logprobs=5)
    done = threading.Event()
    free: list[int] = []

    def watch() -> None:
        while not done.wait(0.001):
            free.append(cupy.cuda.runtime.memGetInfo()[0])

    with LLM(folder, backend="cuda", max_num_seqs=8, num_kv_pages=1200) as llm:
        llm.generate(prompt[:40], params, use_tqdm=False)
        before = cupy.cuda.runtime.memGetInfo()[0]
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            (output,) = llm.generate(prompt, params, use_tqdm=False)
        finally:
            done.set()
            watcher.join()
    taken = before - min(free)
    print(f"{taken / 1e6:.1f} MB more while {LONG_TOKENS} tokens were scored")
    assert taken <= MOST_BYTES
    assert output.prompt_logprobs is not None
    assert all(math.isfinite(entry.logprob) for entry in output.prompt_logprobs[1:] if entry)
