"""Sampling cases end to end: a Qwen3 checkpoint whose logits are a table, run by `LLM`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from pegainfer_core import LLM, SamplingParams
from pegainfer_core.llm import RequestOutput
from pegainfer_core.llm.job import Prompts
from pegainfer_core.testing.tiny import row, script, table_model

DRAWS = 300

Load = Callable[..., LLM]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """`load(table, **options)`; closed at the end."""
    monkeypatch.setenv("PEGAINFER_PLUGINS", "qwen3")
    made: list[LLM] = []

    def start(
        table: Mapping[int, Mapping[int, float]], *, context: int = 256, **options: int | str
    ) -> LLM:
        folder = table_model(
            tmp_path / f"model{len(made)}",
            table,
            max_position_embeddings=context,
            eos_token_ids=(256, 257),
        )
        made.append(LLM(folder, backend="numpy", **options))
        return made[-1]

    yield start
    for llm in made:
        llm.close()


def run(
    llm: LLM, prompts: Prompts, params: SamplingParams | list[SamplingParams]
) -> list[RequestOutput]:
    return llm.generate(prompts, params, use_tqdm=False)


def greedy(max_tokens: int, **fields: float) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, **fields)


def test_penalties(load: Load) -> None:
    """Case N02 a to d."""
    ab = row({"A": 1.0, "B": 0.8}, others=-5)
    rows = {
        ord("1"): row({"A": -0.5, "B": -0.6}, others=-5),
        ord("2"): row({"A": -0.5, "B": -0.8}, others=-5),
        ord("@"): ab,
        ord("A"): ab,
    }
    outputs = run(
        load(rows),
        ["A1", "A2", "A@", "A@"],
        [
            greedy(1, repetition_penalty=1.5),
            greedy(1, repetition_penalty=1.5),
            greedy(2, presence_penalty=2),
            greedy(3, frequency_penalty=0.15),
        ],
    )
    assert [output.text for output in outputs] == ["B", "A", "AB", "AAB"]


def test_filters(load: Load) -> None:
    """Case N03 a and f, case N04 a and b: in large batches. `tests/sampling` draws more."""
    llm = load(
        {
            ord("1"): row(
                {c: math.log(p) for c, p in zip("abcd", (0.45, 0.3, 0.15, 0.1), strict=True)},
                others=-40,
            ),
            ord("2"): row(
                {"a": math.log(0.5), "b": math.log(0.25), "c": math.log(0.25)}, others=-40
            ),
            ord("3"): row({"a": 2, "b": 1, "c": 0, "d": -1}, others=-40),
        }
    )
    low = [math.exp(x / 2) for x in (2, 1, 0)]
    wanted = [
        ("1", {"top_p": 0.8}, (0.5, 1 / 3, 1 / 6)),
        ("2", {"top_k": 2}, (2 / 3, 1 / 3)),
        ("3", {"temperature": 0.5, "top_p": 0.85}, (1.0,)),
        ("3", {"temperature": 2.0, "top_p": 0.85}, [x / sum(low) for x in low]),
    ]
    for prompt, fields, shares in wanted:
        params = [SamplingParams(seed=s, max_tokens=1, **fields) for s in range(DRAWS)]
        counts = Counter(output.text for output in run(llm, [prompt] * DRAWS, params))
        assert set(counts) == set("abcd"[: len(shares)])
        for text, share in zip("abcd", shares, strict=False):
            sigma = math.sqrt(share * (1 - share) / DRAWS)
            assert abs(counts[text] / DRAWS - share) <= 4 * sigma


def test_logprobs_in_one_batch(load: Load) -> None:
    """Case N04 c and d."""
    table = {ord("@"): row({"a": 2, "b": 1, "c": 0, "d": -1}, others=-40)}
    llm = load(table | {ord("x"): row({"@": 1}, others=0)})
    settings = [{"temperature": 1.0}, {"temperature": 0.5}, {"temperature": 2.0}, {"top_k": 1}]
    params = [SamplingParams(seed=1, max_tokens=1, logprobs=4, **s) for s in settings] + [
        SamplingParams(seed=1, max_tokens=1, logprobs=0),
        SamplingParams(seed=1, max_tokens=1),
        SamplingParams(seed=1, max_tokens=1, logprobs=2, prompt_logprobs=1),
    ]
    together = run(llm, ["x@"] * len(params), params)
    assert together == [run(llm, "x@", one)[0] for one in params]
    for output in together[:4]:
        assert output.logprobs is not None
        assert output.logprobs[0].top_logprobs == pytest.approx(
            [-0.4402, -1.4402, -2.4402, -3.4402], abs=1e-4
        )
    assert [output.logprobs is None for output in together[4:]] == [False, True, False]
    scored = together[6].prompt_logprobs
    assert scored is not None
    assert [entry and entry.rank for entry in scored] == [None, 1]


def test_seeds_and_preemption(load: Load) -> None:
    """Case K09 a, b, c, e, f, g; the last batch runs out of pages."""
    rows = {token: row(dict.fromkeys("abcdefgh", 0.0), others=-40) for token in b"@abcdefgh"}
    llm = load(rows, context=1024)

    def seeded(seed: int | None) -> SamplingParams:
        # Longer than what a start leaves room for: two that fit at first outgrow the pages.
        return SamplingParams(seed=seed, max_tokens=400)

    (alone,) = run(llm, "@", seeded(7))
    mates = run(llm, ["@"] * 8, [seeded(s) for s in (None, 7, None, 8, 7, None, None, None)])
    texts = [output.text for output in mates]
    assert texts[1] == texts[4] == alone.text
    assert texts[3] != alone.text
    assert len(set(texts)) == 7
    tight = load(rows, context=1024, num_kv_pages=45)
    squeezed = run(tight, ["@"] * 4, [seeded(s) for s in (7, 8, 7, None)])
    assert tight.metrics().num_preemptions > 0
    assert [output.text for output in squeezed[:3]] == [alone.text, texts[3], alone.text]


def test_min_tokens(load: Load) -> None:
    """Case A15 d."""
    table = {
        ord("@"): row({257: 10, "A": 9}, others=-40),
        ord("A"): row({257: 10, "B": 9}, others=-40),
        ord("B"): {257: 40.0},
    }
    (output,) = run(load(table), "@", greedy(8, min_tokens=2))
    assert (output.text, output.token_ids, output.finish_reason) == ("AB", [65, 66, 257], "stop")


def test_prefix_cache_is_counted(load: Load) -> None:
    llm = load(script("@", ["AB", 256]))
    prompt = [1] * 40 + [ord("@")]
    outputs = [run(llm, [prompt], greedy(4))[0] for _ in range(2)]
    assert [output.num_cached_tokens for output in outputs] == [0, 32]
    assert [output.text for output in outputs] == ["AB", "AB"]
