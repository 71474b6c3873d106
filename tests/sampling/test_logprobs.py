from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegainfer_core.contract import SamplingParams, TokenLogprobs
from pegainfer_core.sampling import Sampler, row_logprobs
from tests.sampling.rows import VOCAB, A, make_row, make_sequence

LOGITS = {A: 2.0, A + 1: 1.0, A + 2: 0.0, A + 3: -1.0}
RAW = [-0.4402, -1.4402, -2.4402, -3.4402]


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 1.0},
        {"temperature": 0.5},
        {"temperature": 2.0},
        {"top_k": 1},
        {"temperature": 0.0, "logit_bias": {A: -50.0}, "repetition_penalty": 2.0},
    ],
)
def test_logprobs_are_the_models_own(params: dict[str, object]) -> None:
    """Case N04 c."""
    sequence = make_sequence(SamplingParams(logprobs=4, **params), [A])  # type: ignore[arg-type]
    result = Sampler(VOCAB, 0).sample(make_row(LOGITS)[None], [sequence])[0]
    assert result.logprobs is not None
    assert result.logprobs.top_token_ids == list(LOGITS)
    assert result.logprobs.top_logprobs == pytest.approx(RAW, abs=5e-5)
    place = result.token_id - A
    assert result.logprobs.logprob == pytest.approx(RAW[place], abs=5e-5)
    assert result.logprobs.rank == place + 1


def test_each_as_alone() -> None:
    """Case N04 d: what mates ask for changes nothing."""
    asked = [4, 0, None, 20]
    sequences = [
        make_sequence(SamplingParams(logprobs=count, seed=3), [A], request_id=i)
        for i, count in enumerate(asked)
    ]
    row = make_row(LOGITS)
    together = Sampler(VOCAB, 0).sample(np.stack([row] * 4), sequences)
    alone = [Sampler(VOCAB, 0).sample(row[None].copy(), [s])[0] for s in sequences]
    assert together == alone
    lengths = [None if r.logprobs is None else len(r.logprobs.top_token_ids) for r in together]
    assert lengths == asked


@given(
    st.lists(
        st.sampled_from([0.0, 1.0, -2.0, -math.inf]) | st.floats(-30, 30, width=32),
        min_size=1,
        max_size=30,
    ),
    st.data(),
)
@settings(deadline=None)
def test_equals_a_plain_log_softmax(values: list[float], data: st.DataObject) -> None:
    row = np.array(values, np.float32)
    chosen = data.draw(st.integers(0, len(values) - 1))
    count = data.draw(st.integers(0, 8))
    before = row.copy()
    entry = row_logprobs(row[None], [chosen], count)[0]
    assert np.array_equal(row, before)
    total = sum(math.exp(x) for x in row.tolist())
    expected = [x - math.log(total) if total else -math.inf for x in row.tolist()]
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    assert entry.rank == order.index(chosen) + 1
    assert entry.top_token_ids == order[:count]
    assert entry.logprob == pytest.approx(expected[chosen], abs=1e-5)
    assert entry.top_logprobs == pytest.approx([expected[i] for i in order[:count]], abs=1e-5)


def test_a_tile_of_prompt_rows() -> None:
    rows = np.stack([make_row(LOGITS), make_row({5: 3.0}, rest=3.0)])
    first, second = row_logprobs(rows, [A + 1, 7], 1)
    assert (first.rank, first.top_token_ids) == (2, [A])
    assert second == TokenLogprobs(
        pytest.approx(-math.log(VOCAB)), 8, [0], [pytest.approx(-math.log(VOCAB))]
    )
    with pytest.raises(ValueError, match="zip"):
        row_logprobs(rows, [1], 1)


def test_not_a_number_and_infinity() -> None:
    (broken,) = row_logprobs(np.array([[math.nan, 1.0, 2.0]], np.float32), [1], 2)
    assert math.isnan(broken.logprob) and broken.top_token_ids == []
    row = np.array([-math.inf, 1.0, -math.inf, 1.0], np.float32)
    entry = row_logprobs(row[None], [2], 4)[0]
    assert entry.logprob == -math.inf
    assert entry.rank == 4
    assert entry.top_token_ids == [1, 3, 0, 2]
    assert entry.top_logprobs == pytest.approx([-math.log(2)] * 2 + [-math.inf] * 2)
    nothing = row_logprobs(np.full((1, 3), -np.inf, np.float32), [1], 2)[0]
    assert nothing == TokenLogprobs(-math.inf, 2, [0, 1], [-math.inf, -math.inf])
    sure = row_logprobs(np.array([[0.0, math.inf]], np.float32), [1], 1)[0]
    assert sure == TokenLogprobs(0.0, 1, [1], [0.0])


def test_sums_in_double_precision() -> None:
    """A float32 sum over a released vocabulary would be off in the fifth digit."""
    row = np.zeros(151_936, np.float32)
    entry = row_logprobs(row[None], [3], 0)[0]
    assert entry.logprob == pytest.approx(-math.log(151_936), rel=1e-9)
