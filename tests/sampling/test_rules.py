"""Masks, bias and penalties: the numbers of case N02 and a plain second implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegainfer_core.contract import SamplingParams
from pegainfer_core.sampling import Sampler
from pegainfer_core.sampling.rules import LogitRules
from tests.sampling.rows import VOCAB, make_row, make_sequence, slow_logits

if TYPE_CHECKING:
    from pegainfer_core.engine.sequence import Sequence

A, B, AT = 65, 66, 64
PROMPT = [A, AT]


def generate(
    table: dict[int, dict[int, float]], params: SamplingParams, eos: list[int] | None = None
) -> list[int]:
    """Greedy steps over a next-token table, up to max_tokens."""
    sampler = Sampler(VOCAB, 0)
    sequence = make_sequence(params, PROMPT, eos=eos)
    for _ in range(params.max_tokens or 1):
        row = make_row(table[sequence.token_ids[-1]], rest=-5)
        sequence.token_ids.append(sampler.sample(row[None], [sequence])[0].token_id)
    return sequence.token_ids[len(PROMPT) :]


def applied(logits: list[float], sequence: Sequence) -> list[float]:
    row = np.array(logits, np.float32)
    LogitRules(sequence.request).apply(row, sequence)
    return row.tolist()


def test_unit_vector() -> None:
    """Case N02, unit."""
    sequence = make_sequence(SamplingParams(repetition_penalty=1.5), [1], [0])
    assert applied([2, -1, 0.5, -3], sequence) == pytest.approx([1.3333, -1.5, 0.5, -3], abs=1e-4)


def test_repetition_penalty_counts_the_prompt_once() -> None:
    """Case N02 a and b."""
    params = SamplingParams(temperature=0, repetition_penalty=1.5, max_tokens=1)
    assert generate({AT: {A: -0.5, B: -0.6}}, params) == [B]
    assert generate({AT: {A: -0.5, B: -0.8}}, params) == [A]


def test_a_repetition_penalty_that_is_zero_as_float32_warns_of_nothing() -> None:
    sequence = make_sequence(SamplingParams(repetition_penalty=1e-300), [1], [0, 2])
    with np.errstate(all="raise"):
        assert list(applied([2, -1, 0, -3], sequence)) == [np.inf, 0, 0, -3]


def test_presence_and_frequency_count_the_output_only() -> None:
    """Case N02 c and d."""
    table = {last: {A: 1.0, B: 0.8} for last in (AT, A)}
    params = SamplingParams(temperature=0, presence_penalty=2, max_tokens=2)
    assert generate(table, params) == [A, B]
    params = SamplingParams(temperature=0, frequency_penalty=0.15, max_tokens=3)
    assert generate(table, params) == [A, A, B]


def test_min_tokens_masks_every_end() -> None:
    """Case A15 d."""
    table = {AT: {257: 10.0, A: 9.0}, A: {257: 10.0, B: 9.0}, B: {257: 10.0}}
    params = SamplingParams(temperature=0, min_tokens=2, max_tokens=3)
    assert generate(table, params, eos=[256, 257]) == [A, B, 257]
    client = SamplingParams(temperature=0, min_tokens=2, max_tokens=3, stop_token_ids=[257])
    assert generate(table, client) == [A, B, 257]


def test_ends_beyond_the_vocabulary_are_no_matter() -> None:
    table = {AT: {A: 10, B: 9}, B: {A: 10, B: 9}}
    params = SamplingParams(temperature=0, min_tokens=1, max_tokens=1)
    assert generate(table, params, eos=[A, VOCAB, 10**9, -1]) == [B]


def test_ignored_ends_are_not_masked_but_the_clients_are() -> None:
    params = SamplingParams(min_tokens=2, ignore_eos=True, stop_token_ids=[3])
    row = applied([0, 0, 0, 0], make_sequence(params, [0], eos=[2]))
    assert row == [0, 0, 0, -np.inf]


def test_bad_sequences_read_the_output_only() -> None:
    params = SamplingParams(bad_token_sequences=[[0], [1, 2], [1, 1, 3]])
    assert applied([5, 5, 5, 5], make_sequence(params, [1, 1])) == [-np.inf, 5, 5, 5]
    assert applied([5, 5, 5, 5], make_sequence(params, [1], [1])) == [-np.inf, 5, -np.inf, 5]
    both = applied([5, 5, 5, 5], make_sequence(params, [1], [1, 1]))
    assert both == [-np.inf, 5, -np.inf, -np.inf]


def test_no_bias_lifts_a_mask_and_penalties_see_the_bias() -> None:
    params = SamplingParams(
        allowed_token_ids=[1, 2], logit_bias={0: 100, 1: 3}, repetition_penalty=2.0
    )
    assert applied([1, -1, 1, 1], make_sequence(params, [1])) == [-np.inf, 1, 1, -np.inf]


def test_masks_that_leave_nothing_choose_the_lowest_allowed_id() -> None:
    for temperature in (0.0, 1.0):
        params = SamplingParams(temperature=temperature, allowed_token_ids=[257, 256], min_tokens=1)
        sequence = make_sequence(params, [64], eos=[256, 257])
        assert Sampler(VOCAB, 0).sample(make_row({})[None], [sequence])[0].token_id == 256


ids = st.integers(0, 9)
penalties = st.sampled_from([0.5, 1.0, 1.3])
rule_params = st.builds(
    SamplingParams,
    temperature=st.just(0.0),
    min_tokens=st.integers(0, 5),
    repetition_penalty=penalties,
    presence_penalty=st.sampled_from([-1.0, 0.0, 0.7]),
    frequency_penalty=st.sampled_from([-0.5, 0.0, 0.3]),
    logit_bias=st.dictionaries(ids, st.floats(-5, 5, width=32), max_size=3),
    allowed_token_ids=st.none() | st.lists(ids, min_size=1, max_size=8),
    bad_token_sequences=st.lists(st.lists(ids, min_size=1, max_size=3), max_size=3),
    stop_token_ids=st.lists(ids, max_size=2),
    ignore_eos=st.booleans(),
)


@given(
    rule_params,
    st.lists(st.floats(-8, 8, width=32) | st.just(-np.inf), min_size=10, max_size=10),
    st.lists(ids, min_size=1, max_size=5),
    st.lists(ids, max_size=12),
    st.lists(ids, max_size=2),
)
@settings(deadline=None, max_examples=100)
def test_equals_the_plain_implementation(
    params: SamplingParams,
    logits: list[float],
    prompt: list[int],
    generated: list[int],
    eos: list[int],
) -> None:
    expected = slow_logits(
        np.array(logits, np.float32), make_sequence(params, prompt, generated, eos=eos)
    )
    sequence = make_sequence(params, prompt, eos=eos)
    rules = LogitRules(sequence.request)
    # Step by step, as an engine does; only the last step's logits count.
    for token_id in [*generated, None]:
        row = np.array(logits, np.float32)
        if rules.active(sequence):
            rules.apply(row, sequence)
        if token_id is not None:
            sequence.token_ids.append(token_id)
    np.testing.assert_allclose(row, np.array(expected, np.float32), rtol=1e-5, atol=1e-5)
