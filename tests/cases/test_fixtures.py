"""F1, F2 and F3 are what cases.md describes; were they not, the cases would prove nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pegainfer_core.testing.byte_tokenizer import byte_tokenizer
from pegainfer_core.testing.tiny import row, script, table_model
from pegainfer_core.text import Tokenizer
from tests.cases.answers import assert_from_logits, greedy, run, score_prompt
from tests.cases.conftest import F3, LoadLLM
from tests.hf import golden
from tests.hf.reference_qwen3 import ReferenceQwen3


def test_f1_ids_are_bytes_and_five_more(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_dir(byte_tokenizer(tmp_path))
    text = "aé🧭 한"
    assert tokenizer.encode(text, False) == list(text.encode())
    assert tokenizer.encode("<eos><turn><think></think>ab##cd", False) == [256, 257, 258, 259, 260]
    assert tokenizer.decode(list(text.encode()), False) == text


def test_f2_logits_are_the_table(tmp_path: Path, load: LoadLLM) -> None:
    rng = np.random.default_rng(2)
    table = {token: dict(enumerate(rng.normal(0, 3, 1024).tolist())) for token in b"@AB"}
    model = ReferenceQwen3(table_model(tmp_path / "m", table | script("x", ["yz", 256])))
    logits = model.logits(list(b"@ABxy"))
    for position, token in enumerate(b"@AB"):
        assert np.abs(logits[position] - list(table[token].values())).max() <= 2e-5
    assert logits[3, ord("y")] == pytest.approx(40, abs=2e-5)
    entries = score_prompt(load(tmp_path / "m"), list(b"@ABxy"))
    for position, token in enumerate(b"@AB"):
        wanted = np.array(list(table[token].values()))
        assert_from_logits(entries[position], wanted, 2e-5)


def test_a_script_is_certain(tmp_path: Path, load: LoadLLM) -> None:
    (output,) = run(load(table_model(tmp_path / "m", script("@", ["Hi", 256]))), "@", greedy(2))
    assert output.text == "Hi"
    assert row({"a": 1.0}, others=-40)[0] == -40


@pytest.mark.parametrize("num_tokens", [40, 64])
def test_f3_hears_every_token(num_tokens: int, f3: Path, load: LoadLLM) -> None:
    """Changing any one prompt token moves the last logits by more than 0.01.

    Log-probabilities move by at most twice as much as logits do.
    """
    rng = np.random.default_rng(num_tokens)
    prompt = rng.integers(5, 1000, num_tokens)
    variants = np.repeat(prompt[None], num_tokens, axis=0)
    at = np.arange(num_tokens)
    variants[at, at] = (variants[at, at] + rng.integers(1, 1000, num_tokens)) % 1000
    prompts = [prompt.tolist(), *variants.tolist()]
    first, *others = run(load(f3), prompts, greedy(1, logprobs=20))
    assert first.logprobs is not None
    best = dict(zip(first.logprobs[0].top_token_ids, first.logprobs[0].top_logprobs, strict=True))
    for other in others:
        assert other.logprobs is not None
        entry = other.logprobs[0]
        moved = [
            abs(best[token] - value)
            for token, value in zip(entry.top_token_ids, entry.top_logprobs, strict=True)
            if token in best
        ]
        assert max(moved, default=np.inf) > 0.02


@pytest.mark.parametrize("num_tokens", [5, 37, 130])
def test_f3_answers_as_transformers_does(num_tokens: int, f3: Path, load: LoadLLM) -> None:
    expected = golden.load(F3).prompts[num_tokens]
    llm = load(f3)
    prompt = expected.prompt.tolist()
    (output,) = run(llm, [prompt], greedy(64))
    assert output.token_ids == expected.greedy.tolist()
    entries = score_prompt(llm, prompt)
    for index, position in enumerate(expected.rows.tolist()[:-1]):
        assert_from_logits(entries[position], expected.logits[index])
