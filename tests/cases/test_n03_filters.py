"""N03: top_k, top_p and min_p keep exactly the tokens that their definitions name.

Seen elsewhere: the token that crosses the threshold is dropped, ties let in too many, nothing at
all is left, or one of two filters is skipped.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import pytest

from pegainfer_core import LLM
from pegainfer_core.contract import SamplingParams
from pegainfer_core.plugin import PluginHost
from pegainfer_core.testing.tiny import row, table_model
from tests.cases.answers import greedy, run

#: 200 seeds, 20 positions each: 4000 draws. A quarter of them where one token alone may come.
NUM_SEEDS, NUM_POSITIONS = 200, 20

FIRST = dict(zip("abcd", (0.45, 0.30, 0.15, 0.10), strict=True))
TIED = dict(zip("wxyz", (0.5, 0.25, 0.25, 0.0), strict=True))
#: Letter: prompt, fields, and the exact share of each token that may come.
FILTERED: dict[str, tuple[str, dict[str, float], dict[str, float]]] = {
    "a": ("@", {"top_p": 0.8}, {"a": 1 / 2, "b": 1 / 3, "c": 1 / 6}),
    "b": ("@", {"top_k": 1, "top_p": 0.8}, {"a": 1.0}),
    "c": ("@", {"top_k": 3, "top_p": 0.48}, {"a": 1.0}),
    "d": ("@", {"min_p": 0.3}, {"a": 1 / 2, "b": 1 / 3, "c": 1 / 6}),
    "e": ("@", {"top_p": 1e-6}, {"a": 1.0}),
    "f": ("#", {"top_k": 2}, {"w": 2 / 3, "x": 1 / 3}),
}


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory, qwen3_host: PluginHost) -> Iterator[LLM]:
    """F2: one distribution after `@` and its tokens, another with ties after `#` and its own."""

    def logits(shares: dict[str, float]) -> dict[int, float]:
        return row({c: math.log(p) if p else -40.0 for c, p in shares.items()}, others=-40)

    table = dict.fromkeys(b"@abcd", logits(FIRST)) | dict.fromkeys(b"#wxyz", logits(TIED))
    folder = table_model(tmp_path_factory.mktemp("n03") / "m", table)
    with LLM(folder, host=qwen3_host, backend="numpy", max_num_seqs=NUM_SEEDS) as made:
        yield made


@pytest.mark.parametrize("letter", FILTERED)
def test_support_and_shares(letter: str, llm: LLM) -> None:
    prompt, fields, shares = FILTERED[letter]
    num_seeds = NUM_SEEDS if len(shares) > 1 else NUM_SEEDS // 4
    params = [
        SamplingParams(temperature=1, seed=seed, max_tokens=NUM_POSITIONS, **fields)
        for seed in range(num_seeds)
    ]
    counts = Counter("".join(o.text for o in run(llm, [prompt] * num_seeds, params)))
    num_draws = num_seeds * NUM_POSITIONS
    assert counts.total() == num_draws
    assert set(counts) == set(shares)
    for token, share in shares.items():
        sigma = math.sqrt(share * (1 - share) / num_draws)
        assert abs(counts[token] / num_draws - share) <= 4 * sigma


def test_f_the_same_in_every_row_and_run(llm: LLM) -> None:
    """Rows 0, 5 and 9 of batches whose other rows are of every kind."""
    mates = [
        greedy(NUM_POSITIONS),
        SamplingParams(max_tokens=NUM_POSITIONS, logprobs=3),
        SamplingParams(max_tokens=NUM_POSITIONS, top_p=0.3, temperature=2),
        SamplingParams(max_tokens=NUM_POSITIONS, min_p=0.9),
    ]
    tied = [SamplingParams(seed=seed, top_k=2, max_tokens=NUM_POSITIONS) for seed in range(6)]
    alone = [run(llm, "#", one)[0].text for one in tied]
    assert set("".join(alone)) == {"w", "x"}
    for first, text in zip(tied, alone, strict=True):
        params = [mates[index % 4] for index in range(10)]
        for place in (0, 5, 9):
            params[place] = first
        outputs = run(llm, ["#"] * 10, params)
        assert [outputs[place].text for place in (0, 5, 9)] == [text] * 3


def test_f_ties_by_mass(llm: LLM) -> None:
    """Under top_p too the lower id of two equal ones comes first, and one of them is enough."""
    params = [SamplingParams(seed=seed, max_tokens=20, top_p=0.6) for seed in range(20)]
    assert set("".join(output.text for output in run(llm, ["#"] * 20, params))) == {"w", "x"}


def test_one_token_is_always_left(llm: LLM) -> None:
    for fields in ({"top_p": 0.0}, {"min_p": 1.0}, {"top_k": 1, "top_p": 0.0, "min_p": 1.0}):
        params = [SamplingParams(seed=seed, max_tokens=4, **fields) for seed in range(20)]
        assert {output.text for output in run(llm, ["@"] * 20, params)} == {"aaaa"}
