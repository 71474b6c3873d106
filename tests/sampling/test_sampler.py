"""The batch front: seeds, independence of mates, request state, the greedy path."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegainfer_core.contract import SamplingParams
from pegainfer_core.sampling import SampledToken, Sampler
from pegainfer_core.sampling.sampler import NO_TOKEN
from tests.sampling.rows import VOCAB, make_row, make_sequence

if TYPE_CHECKING:
    from pegainfer_core.engine.sequence import Sequence

EIGHT = make_row({97 + i: math.log(1 / 8) for i in range(8)})
STEPS = 16


def run(
    sequences: list[Sequence], sampler: Sampler | None = None, steps: int = STEPS
) -> list[list[int]]:
    sampler = sampler or Sampler(VOCAB, 0)
    for _ in range(steps):
        choices = sampler.sample(np.stack([EIGHT] * len(sequences)), sequences)
        for sequence, choice in zip(sequences, choices, strict=True):
            sequence.token_ids.append(choice.token_id)
    return [sequence.token_ids[sequence.num_prompt :] for sequence in sequences]


def seeded(seed: int | None, request_id: int = 1, sample_index: int = 0) -> Sequence:
    params = SamplingParams(seed=seed)
    return make_sequence(params, request_id=request_id, sample_index=sample_index)


def test_seed_decides_whatever_the_mates() -> None:
    """Case K09 a, b, c, e."""
    alone = run([seeded(7)])[0]
    assert run([seeded(7, 40)], Sampler(VOCAB, 99))[0] == alone
    for row in range(6):
        mates = [seeded(None, i) for i in range(2, 7)]
        assert run([*mates[:row], seeded(7), *mates[row:]])[row] == alone
    assert run([seeded(7, 1), seeded(7, 2)]) == [alone, alone]
    assert run([seeded(8)])[0] != alone


def test_samples_of_one_seed_differ_and_repeat() -> None:
    """Case K09 d."""
    first = run([seeded(7, i, i) for i in range(4)])
    assert len({tuple(text) for text in first}) == 4
    assert run([seeded(7, 50 + i, i) for i in range(4)]) == first


def test_unseeded_requests_differ() -> None:
    """Case K09 f; the same engine seed and request id repeat, another engine seed does not."""
    texts = run([seeded(None, i) for i in range(20)])
    assert len({tuple(text) for text in texts}) == 20
    assert run([seeded(None, i) for i in range(20)]) == texts
    assert run([seeded(None, 3)], Sampler(VOCAB, 1))[0] != texts[3]


@pytest.mark.parametrize("seed", [7, None])
def test_preemption_changes_nothing(seed: int | None) -> None:
    """Case K09 g: the state is gone, the token ids are not."""
    params = SamplingParams(seed=seed, frequency_penalty=1.5, repetition_penalty=1.2)
    whole = run([make_sequence(params)])[0]
    sequence = make_sequence(params)
    sampler = Sampler(VOCAB, 0)
    run([sequence], sampler, 5)
    sampler.forget(sequence.request_id)
    assert run([sequence], sampler, STEPS - 5)[0] == whole
    moved = make_sequence(params)
    run([moved], steps=5)
    assert run([moved], Sampler(VOCAB, 0), STEPS - 5)[0] == whole


def test_penalties_bite_over_steps() -> None:
    params = SamplingParams(presence_penalty=2.0, temperature=0)
    assert run([make_sequence(params)], steps=8)[0] == list(range(97, 105))


def test_an_id_used_again_starts_anew() -> None:
    params = SamplingParams(presence_penalty=2.0, temperature=0)
    sampler = Sampler(VOCAB, 0)
    for _ in range(2):
        assert run([make_sequence(params)], sampler, 3)[0] == [97, 98, 99]


def test_what_is_remembered_stays_bounded() -> None:
    sampler = Sampler(VOCAB, 0)
    for request_id in range(1000):
        run([seeded(1, request_id)], sampler, 1)
    assert len(sampler._states) <= 64
    sampler.forget(999)
    sampler.forget(999)
    assert 999 not in sampler._states


params_strategy = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.7, 1.0, 1.5]),
    top_k=st.sampled_from([0, 1, 3]),
    top_p=st.sampled_from([0.0, 0.5, 1.0]),
    min_p=st.sampled_from([0.0, 0.4]),
    seed=st.sampled_from([None, 0, 7]),
    repetition_penalty=st.sampled_from([1.0, 1.2]),
    presence_penalty=st.sampled_from([0.0, 0.5]),
    logit_bias=st.sampled_from([{}, {3: 2.0}]),
    min_tokens=st.sampled_from([0, 2]),
    stop_token_ids=st.sampled_from([[], [1]]),
    logprobs=st.sampled_from([None, 0, 2]),
)


@given(st.lists(params_strategy, min_size=1, max_size=6), st.integers(0, 2**32))
@settings(deadline=None, max_examples=100)
def test_rows_are_independent_of_mates_and_order(batch: list[SamplingParams], seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = (rng.integers(-8, 8, (len(batch), 12)) / 2).astype(np.float32)
    sequences = [
        make_sequence(params, [1, 2], rng.integers(0, 12, i % 4).tolist(), request_id=i, eos=[0])
        for i, params in enumerate(batch)
    ]
    alone = [
        Sampler(12, 5).sample(logits[i : i + 1].copy(), [sequence])[0]
        for i, sequence in enumerate(sequences)
    ]
    order = rng.permutation(len(batch))
    mixed = Sampler(12, 5).sample(logits[order], [sequences[i] for i in order])
    assert mixed == [alone[i] for i in order]


def greedy(count: int) -> list[Sequence]:
    return [make_sequence(SamplingParams(temperature=0), request_id=i) for i in range(count)]


def test_greedy_batch_takes_the_lowest_id_and_no_nan() -> None:
    rows = np.stack([make_row({5: 1, 9: 1}), make_row({0: math.nan, 9: 1}), make_row({7: 2})])
    chosen = Sampler(VOCAB, 0).sample(rows, greedy(3))
    assert chosen == [SampledToken(5, None), SampledToken(NO_TOKEN, None), SampledToken(7, None)]
    nothing = np.full((2, VOCAB), -np.inf, np.float32)
    nothing[1, 8] = 0
    assert [c.token_id for c in Sampler(VOCAB, 0).sample(nothing, greedy(2))] == [0, 8]


@pytest.mark.parametrize(
    ("params", "token_id"),
    [
        ({"temperature": 0}, NO_TOKEN),
        ({"seed": 1}, NO_TOKEN),
        ({"seed": 1, "top_k": 3, "logprobs": 2}, NO_TOKEN),
        ({"temperature": 0, "logprobs": 2}, NO_TOKEN),
        ({"temperature": 0, "repetition_penalty": 2.0}, NO_TOKEN),
        # What is masked is not looked at.
        ({"temperature": 0, "allowed_token_ids": [9]}, 9),
    ],
)
def test_a_row_that_holds_nan_has_no_token(params: dict[str, object], token_id: int) -> None:
    row = make_row({700: math.nan, 9: 1})[None]
    sequence = make_sequence(SamplingParams(**params))
    assert Sampler(VOCAB, 0).sample(row.copy(), [sequence])[0].token_id == token_id
    # A column that is never chosen does not matter.
    assert Sampler(VOCAB, 0, num_selectable=700).sample(row, [sequence])[0].token_id >= 0


@pytest.mark.parametrize(
    "params", [{"temperature": 0}, {"seed": 1}, {"temperature": 0, "logprobs": 1}]
)
def test_padding_rows_of_the_embedding_are_never_chosen(params: dict[str, int]) -> None:
    rows = make_row({900: 50.0, 1023: 60.0, 4: 1.0}, rest=-40)[None]
    sequence = make_sequence(SamplingParams(**params))
    sampler = Sampler(VOCAB, 0, num_selectable=900)
    assert sampler.sample(rows.copy(), [sequence])[0].token_id == 4
    assert Sampler(VOCAB, 0, num_selectable=901).sample(rows, [sequence])[0].token_id == 900


def test_misuse_is_named() -> None:
    with pytest.raises(ValueError, match=r"float32 \(1, 1024\), not float64 \(1, 1024\)"):
        Sampler(VOCAB, 0).sample(np.zeros((1, VOCAB)), greedy(1))
    with pytest.raises(ValueError, match=r"\(2, 1024\), not float32 \(1, 1024\)"):
        Sampler(VOCAB, 0).sample(np.zeros((1, VOCAB), np.float32), greedy(2))
    with pytest.raises(ValueError, match="vocab_size must be 1 to 1048576"):
        Sampler(2**20 + 1, 0)
    with pytest.raises(ValueError, match="num_selectable must be 1 to 8, not 9"):
        Sampler(8, 0, num_selectable=9)


def test_an_empty_batch() -> None:
    assert Sampler(VOCAB, 0).sample(np.empty((0, VOCAB), np.float32), []) == []
