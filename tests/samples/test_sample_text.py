"""The committed samples write English on the NumPy backend."""

import json
from pathlib import Path

import pytest
from samples.generation import Generation
from samples.prompts import COMPLETION_PROMPTS
from samples.quality import (
    MIN_DISTINCT_SHARE,
    MIN_KNOWN_WORD_SHARE,
    judge,
    known_word_share,
)
from samples.words import WORD_LIST, read_words
from tokenizers import Tokenizer

from pegainfer_core import LLM, SamplingParams

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
NUM_TOKENS = 40


@pytest.mark.parametrize("name", ["qwen3", "qwen35"])
def test_greedy_text_is_made_of_words_and_does_not_loop(name):
    folder = SAMPLES / f"{name}-sample"
    prompts = list(COMPLETION_PROMPTS[:4])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    generation = json.loads((folder / "generation_config.json").read_text())
    params = SamplingParams(
        max_tokens=NUM_TOKENS,
        temperature=0,
        repetition_penalty=generation["repetition_penalty"],
    )
    with LLM(folder, backend="numpy", max_model_len=512) as llm:
        answers = llm.generate(prompts, params)
    known = read_words(WORD_LIST)
    judged = [
        judge(
            "completion",
            Generation(prompt=prompt, text=answer.text, finish_reason=answer.finish_reason),
            tokenizer,
            known,
        )
        for prompt, answer in zip(prompts, answers, strict=True)
    ]
    assert min(found.distinct_share for found in judged) >= MIN_DISTINCT_SHARE
    assert sum(found.num_words for found in judged) >= 40
    assert known_word_share(judged) >= MIN_KNOWN_WORD_SHARE
