"""One row, one choice: filters and draw against arithmetic and a plain second implementation."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from pegainfer_core.contract import SamplingParams
from pegainfer_core.sampling import choose_token, token_bits
from tests.sampling.rows import VOCAB, A, B, C, D, exact_choice, make_row, slow_draw, slow_kept

if TYPE_CHECKING:
    from numpy.typing import NDArray

DRAWS = 2000


def draw(row: NDArray[np.float32], **params: float | int) -> Counter[int]:
    sampling = SamplingParams(**params)
    return Counter(choose_token(row, sampling, token_bits(seed, 0, 1)) for seed in range(DRAWS))


def assert_shares(counts: Counter[int], shares: dict[int, float]) -> None:
    assert set(counts) == set(shares)
    for token_id, share in shares.items():
        sigma = math.sqrt(share * (1 - share) / DRAWS)
        assert abs(counts[token_id] / DRAWS - share) <= 4 * sigma


def ln_row(*shares: float) -> NDArray[np.float32]:
    return make_row({A + i: math.log(p) for i, p in enumerate(shares) if p > 0})


NUCLEUS = (0.45, 0.30, 0.15, 0.10)


@pytest.mark.parametrize(
    ("params", "shares"),
    [
        ({}, {A: 0.45, B: 0.30, C: 0.15, D: 0.10}),
        ({"top_p": 0.8}, {A: 0.5, B: 1 / 3, C: 1 / 6}),
        ({"top_k": 1, "top_p": 0.8}, {A: 1.0}),
        ({"top_k": 3, "top_p": 0.48}, {A: 1.0}),
        ({"min_p": 0.3}, {A: 0.5, B: 1 / 3, C: 1 / 6}),
        ({"top_p": 1e-6}, {A: 1.0}),
        ({"top_p": 0.0}, {A: 1.0}),
        ({"min_p": 1.0}, {A: 1.0}),
        ({"top_k": -1}, {A: 0.45, B: 0.30, C: 0.15, D: 0.10}),
        ({"top_k": VOCAB}, {A: 0.45, B: 0.30, C: 0.15, D: 0.10}),
        ({"top_k": 2}, {A: 0.6, B: 0.4}),
    ],
)
def test_filters(params: dict[str, float], shares: dict[int, float]) -> None:
    """Case N03 a to e."""
    assert_shares(draw(ln_row(*NUCLEUS), **params), shares)


def test_ties_at_the_cut_keep_the_lower_id() -> None:
    """Case N03 f."""
    assert_shares(draw(ln_row(0.5, 0.25, 0.25, 0), top_k=2), {A: 2 / 3, B: 1 / 3})
    assert_shares(draw(ln_row(0.5, 0.25, 0.25, 0), top_p=0.7), {A: 2 / 3, B: 1 / 3})


def test_temperature_before_the_nucleus() -> None:
    """Case N04 a and b."""
    row = make_row({A: 2, B: 1, C: 0, D: -1})
    assert_shares(draw(row, temperature=0.5, top_p=0.85), {A: 1.0})
    weights = [math.exp(x / 2) for x in (2, 1, 0)]
    shares = {A + i: w / sum(weights) for i, w in enumerate(weights)}
    assert shares[C] == pytest.approx(0.186, abs=5e-4)
    assert_shares(draw(row, temperature=2.0, top_p=0.85), shares)


GREEDY: list[dict[str, float | int]] = [
    {"temperature": 0},
    {"temperature": 0, "top_k": -1},
    {"temperature": 0, "top_p": 0.1, "top_k": 1},
    {"temperature": 0, "top_p": 0.0},
    {"temperature": 0, "min_p": 1.0},
    {"temperature": 0, "seed": 7},
    {"temperature": 1e-6},
    {"temperature": 1, "top_k": 1},
    {"temperature": 5, "top_p": 1 / VOCAB},
]


@pytest.mark.parametrize("params", GREEDY)
def test_greedy_whatever_the_filters(params: dict[str, float | int]) -> None:
    """Case A05; the row is so flat that any draw would show another token."""
    row = np.zeros(VOCAB, np.float32)
    row[[B, C]] = np.nextafter(np.float32(0), np.float32(1))
    sampling = SamplingParams(**params)
    assert {choose_token(row, sampling, token_bits(s, 0, 1)) for s in range(50)} == {B}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_not_a_number_and_infinity(temperature: float) -> None:
    params = SamplingParams(temperature=temperature)
    row = make_row({A: math.nan, B: 3, 0: math.nan}, rest=-math.inf)
    assert choose_token(row, params, 2**63) == B
    row = make_row({C: math.inf, A: math.nan, B: 3e38}, rest=-math.inf)
    assert choose_token(row, params, 2**63) == C
    row = make_row({A: math.nan}, rest=-math.inf)
    assert choose_token(row, params, 2**63) == 0
    assert choose_token(row, params, 2**63, fallback_id=5) == 5


def test_signed_zeros_tie() -> None:
    row = make_row({}, rest=-1)
    row[B], row[C] = -0.0, 0.0
    assert choose_token(row, SamplingParams(temperature=0), 0) == B
    assert choose_token(row, SamplingParams(top_k=1), 0) == B


def test_extreme_bits_stay_inside_the_kept_set() -> None:
    row = ln_row(*NUCLEUS)
    for params in ({}, {"top_p": 0.8}, {"top_k": 2}, {"min_p": 0.3}):
        sampling = SamplingParams(**params)
        assert choose_token(row, sampling, 0) == A
        assert choose_token(row, sampling, 2**64 - 1) in (B, C, D)


logits_lists = st.lists(
    st.integers(-6, 6).map(float) | st.floats(-20, 20, width=32), min_size=2, max_size=40
)
filters = st.fixed_dictionaries(
    {
        "temperature": st.floats(0.05, 3),
        "top_k": st.integers(-1, 45).filter(lambda k: k != 1),
        "top_p": st.floats(0.03, 1) | st.just(1.0),
        "min_p": st.floats(0, 1) | st.just(0.0),
    }
)


@given(logits_lists, filters, st.integers(0, 2**64 - 1))
@example([-(2.0**-52), 0.0, 0.0, 0.0, 0.0], {"top_p": 0.5}, 0).via("nearly equal at the cut")
@settings(deadline=None, max_examples=100)
def test_equals_the_plain_implementation(
    values: list[float], params: dict[str, float], bits: int
) -> None:
    sampling = SamplingParams(**params)
    assume(sampling.top_p * len(values) > 1)
    row = np.array(values, np.float32)
    kept, margin = slow_kept(row.tolist(), sampling)
    expected, distance = slow_draw(kept, bits / 2**64)
    assume(margin > 1e-5 and distance > 1e-5)
    assert choose_token(row, sampling, bits) == expected


@given(logits_lists, filters, st.integers(0, 2**64 - 1))
@settings(deadline=None, max_examples=100)
def test_equals_the_definition(values: list[float], params: dict[str, float], bits: int) -> None:
    sampling = SamplingParams(**params)
    assume(sampling.top_p * len(values) > 1)
    row = np.array(values, np.float32)
    assert choose_token(row, sampling, bits) == exact_choice(row, sampling, bits)


@pytest.mark.parametrize("vocab", [5000, 40_000])
@pytest.mark.parametrize("distinct", [1, 20, 10**6])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"top_p": 0.9},
        {"top_p": 0.3},
        {"top_p": 1 - 1e-16},
        {"top_k": 3000, "top_p": 0.7},
        {"min_p": 0.2},
    ],
)
def test_long_rows(vocab: int, distinct: int, params: dict[str, float]) -> None:
    rng = np.random.default_rng([vocab, distinct])
    row = (rng.integers(0, distinct, vocab) / distinct * 8).astype(np.float32)
    sampling = SamplingParams(**params)
    for seed in range(3):
        bits = token_bits(seed, 0, 0)
        assert choose_token(row, sampling, bits) == exact_choice(row, sampling, bits)
