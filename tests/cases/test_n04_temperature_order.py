"""N04: temperature divides the logits before any filter; reported log-probabilities are untouched.

Seen elsewhere: temperature comes after top_p or is applied to probabilities; log-probabilities
change with a request's sampling settings, or with what its batch mates asked for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pegainfer_core import LLM
from pegainfer_core.contract import SamplingParams
from pegainfer_core.plugin import PluginHost
from pegainfer_core.testing.tiny import row, table_model
from tests.cases.answers import greedy, run

#: 200 seeds, 20 positions each: 4000 draws. A quarter of them where one token alone may come.
NUM_SEEDS, NUM_POSITIONS = 200, 20
LOGITS = dict(zip("abcd", (2.0, 1.0, 0.0, -1.0), strict=True))
LOGPROBS = [-0.4402, -1.4402, -2.4402, -3.4402]
SETTINGS = ({"temperature": 1.0}, {"temperature": 0.5}, {"temperature": 2.0}, {"top_k": 1})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """F2: after `@` and each of its tokens the same four."""
    table = dict.fromkeys(b"@abcd", row(LOGITS, others=-40))
    table[ord("x")] = row({"@": 1.0, "y": 0.5}, others=-40)
    return table_model(tmp_path_factory.mktemp("n04") / "m", table)


@pytest.fixture(scope="module")
def llm(folder: Path, qwen3_host: PluginHost) -> Iterator[LLM]:
    with LLM(folder, host=qwen3_host, backend="numpy", max_num_seqs=NUM_SEEDS) as made:
        yield made


@pytest.mark.parametrize(
    ("letter", "temperature", "kept"),
    [("a", 0.5, "a"), ("b", 2.0, "abc")],
)
def test_a_and_b_temperature_comes_first(
    letter: str, temperature: float, kept: str, llm: LLM
) -> None:
    num_seeds = NUM_SEEDS if len(kept) > 1 else NUM_SEEDS // 4
    params = [
        SamplingParams(temperature=temperature, top_p=0.85, seed=seed, max_tokens=NUM_POSITIONS)
        for seed in range(num_seeds)
    ]
    outputs = run(llm, ["@"] * num_seeds, params)
    counts = Counter("".join(output.text for output in outputs))
    masses = {token: math.exp(LOGITS[token] / temperature) for token in kept}
    assert set(counts) == set(kept)
    for token, mass in masses.items():
        share = mass / sum(masses.values())
        sigma = math.sqrt(share * (1 - share) / counts.total())
        assert abs(counts[token] / counts.total() - share) <= 4 * sigma
    if letter == "b":
        assert masses["c"] / sum(masses.values()) == pytest.approx(0.186, abs=5e-4)


@pytest.mark.parametrize("settings", SETTINGS)
def test_c_logprobs_are_the_models_own(settings: dict[str, float], llm: LLM) -> None:
    params = [SamplingParams(seed=seed, max_tokens=3, logprobs=4, **settings) for seed in range(8)]
    for output in run(llm, ["@"] * 8, params):
        assert output.logprobs is not None
        for token_id, entry in zip(output.token_ids, output.logprobs, strict=True):
            assert entry.top_token_ids == list(b"abcd")
            assert entry.top_logprobs == pytest.approx(LOGPROBS, abs=1e-4)
            assert entry.logprob == entry.top_logprobs[token_id - ord("a")]
            assert entry.rank == 1 + token_id - ord("a")


def test_d_one_batch(llm: LLM) -> None:
    """Four, none beside the chosen one, none at all, and the prompt's too; each as alone."""
    params = [
        *(SamplingParams(seed=3, max_tokens=4, logprobs=4, **settings) for settings in SETTINGS),
        SamplingParams(seed=4, max_tokens=4, logprobs=0),
        SamplingParams(seed=5, max_tokens=4),
        SamplingParams(seed=6, max_tokens=4, logprobs=2, prompt_logprobs=1),
        SamplingParams(seed=7, max_tokens=4, prompt_logprobs=4),
        SamplingParams(seed=8, max_tokens=0, logprobs=1, prompt_logprobs=2),
        greedy(4, logprobs=1, frequency_penalty=1.5),
    ]
    alone = [run(llm, "xx@", one)[0] for one in params]
    uncached = [{**vars_of(output), "num_cached_tokens": 0} for output in alone]
    for order in (range(len(params)), reversed(range(len(params)))):
        chosen = list(order)
        together = run(llm, ["xx@"] * len(params), [params[index] for index in chosen])
        found = [{**vars_of(output), "num_cached_tokens": 0} for output in together]
        assert found == [uncached[index] for index in chosen]
    scored, whole = alone[6], alone[7]
    assert scored.prompt_logprobs is not None and whole.prompt_logprobs is not None
    assert scored.prompt_logprobs[0] is None
    # `x` is followed by `@` with 1.0 and `y` with 0.5: the second `x` has -40.
    second, third = scored.prompt_logprobs[1:]
    assert second is not None and third is not None
    lse = math.log(math.exp(1.0) + math.exp(0.5))
    assert (second.logprob, third.logprob) == pytest.approx((-40 - lse, 1.0 - lse), abs=1e-4)
    assert second.top_token_ids == third.top_token_ids == [ord("@")]
    assert third.rank == 1
    assert whole.logprobs is None and len(whole.prompt_logprobs) == 3
    assert alone[8].token_ids == [] and alone[8].logprobs == []


def vars_of(output: object) -> dict[str, object]:
    return {name: getattr(output, name) for name in output.__struct_fields__}  # type: ignore[attr-defined]
