"""What a device is told, and what is made of its answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegainfer_core.contract import GenerateRequest, SamplingParams, TokenLogprobs
from pegainfer_core.engine.sequence import Sequence
from pegainfer_core.sampling import (
    ChoiceKind,
    ChoiceRow,
    DeviceStepSampler,
    SampledToken,
    Sampler,
    row_logprobs,
)
from pegainfer_core.sampling import choice_words as place
from pegainfer_core.sampling.choice_words import draws, row_words
from pegainfer_core.sampling.mass import PEAK_MASS
from tests.sampling.numpy_device import NumpyDevice, wide

VOCAB = 40
WORDS = NumpyDevice.num_words


def sequence(params: SamplingParams, slot: int = 0, generated: list[int] | None = None) -> Sequence:
    request = GenerateRequest(
        request_id=slot, prompt_token_ids=[1, 2, 3], params=params, eos_token_ids=[3, VOCAB + 5]
    )
    made = Sequence(request, max_tokens=100, slot=slot)
    made.token_ids += generated or []
    return made


def pack_one(sampler: DeviceStepSampler, seq: Sequence) -> tuple[ChoiceKind, np.ndarray]:
    words = np.zeros((1, WORDS), np.int32)
    return sampler.pack([ChoiceRow(seq, len(seq.token_ids))], words), words[0]


def words_of(num_ids: int = 1000, seed: int = 0, **params: float) -> np.ndarray:
    return row_words(SamplingParams(**params), seed, 2, num_ids, WORDS)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, True),
        ({"temperature": 0}, False),
        ({"top_k": 1}, False),
        ({"top_p": 0.0}, False),
        ({"top_p": 1e-3}, False),
        ({"top_p": 1.01e-3}, True),
    ],
)
def test_who_draws(params: dict[str, float], expected: bool) -> None:
    assert draws(SamplingParams(**params), 1000) is expected
    assert words_of(**params)[place.FLAGS] == int(expected)


def test_words_of_a_draw() -> None:
    words = words_of(seed=-2, temperature=0.5, top_k=7, top_p=0.9, min_p=0.1)
    reals = words.view(np.float32)
    assert words[place.TOP_K] == 7
    assert reals[place.SCALE] == np.float32(math.log2(math.e) / 0.5)
    assert words[place.TOP_P : place.TOP_P + 2].copy().view(np.float64)[0] == 0.9
    assert wide(words, place.SEED) == 2**64 - 2
    assert words[place.SAMPLE] == 2
    least = math.ceil(0.1 * PEAK_MASS)
    assert int(reals[place.FLOOR]) >= least > int(np.nextafter(reals[place.FLOOR], np.float32(0)))


@pytest.mark.parametrize("top_k", [0, -1, 1000, 5000])
def test_a_top_k_that_keeps_everything_is_none(top_k: int) -> None:
    assert words_of(top_k=top_k)[place.TOP_K] == 0


def test_a_cold_draw_stays_finite() -> None:
    assert np.isfinite(words_of(temperature=1.0001e-5).view(np.float32)[place.SCALE])


params_strategy = st.builds(
    SamplingParams,
    temperature=st.just(0.0),
    repetition_penalty=st.sampled_from([1.0, 1.2, 0.7]),
    presence_penalty=st.sampled_from([0.0, 0.5]),
    frequency_penalty=st.sampled_from([0.0, -0.3]),
    logit_bias=st.sampled_from([{}, {5: 2.0, 3: -100.0}]),
    allowed_token_ids=st.sampled_from([None, [3, 5, 7, 33]]),
    bad_token_sequences=st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=3), max_size=12),
    min_tokens=st.sampled_from([0, 2, 50]),
    stop_token_ids=st.sampled_from([[], [5, 6]]),
    ignore_eos=st.booleans(),
)


@given(params_strategy, st.integers(0, 2**32), st.integers(0, 1))
@settings(deadline=None, max_examples=150)
def test_greedy_texts_are_the_host_samplers(
    params: SamplingParams, seed: int, num_unread: int
) -> None:
    """Through words and tables, with the newest id unknown to the packing side or not."""
    device, host = NumpyDevice(VOCAB), Sampler(VOCAB, 0)
    sampler = DeviceStepSampler(device, 0)
    rng = np.random.default_rng(seed)
    seq = sequence(params, slot=2)
    for step in range(6):
        logits = (rng.integers(-8, 8, VOCAB) / 2).astype(np.float32)
        expected = host.sample(logits[None].copy(), [seq])[0].token_id
        words = np.zeros((1, WORDS), np.int32)
        unread = [seq.token_ids.pop() for _ in range(num_unread if step else 0)]
        sampler.pack([ChoiceRow(seq, len(seq.token_ids) + len(unread))], words)
        assert device.choose_greedily(words[0], logits) == expected
        seq.token_ids += [*unread, expected]


def test_the_least_work_is_asked_for() -> None:
    sampler = DeviceStepSampler(NumpyDevice(VOCAB), 0)
    kinds = [
        (SamplingParams(temperature=0), ChoiceKind.BEST),
        (SamplingParams(), ChoiceKind.DRAW),
        (SamplingParams(temperature=0, logprobs=0), ChoiceKind.FULL),
        (SamplingParams(presence_penalty=1.0), ChoiceKind.FULL),
    ]
    for slot, (params, kind) in enumerate(kinds):
        assert pack_one(sampler, sequence(params, slot))[0] is kind
    rows = [ChoiceRow(sequence(params, slot), 3) for slot, (params, _) in enumerate(kinds)]
    assert sampler.pack(rows[:2], np.zeros((2, WORDS), np.int32)) is ChoiceKind.DRAW


def test_min_tokens_cost_nothing_once_reached() -> None:
    device = NumpyDevice(VOCAB)
    sampler = DeviceStepSampler(device, 0)
    seq = sequence(SamplingParams(temperature=0, min_tokens=2))
    assert pack_one(sampler, seq)[0] is ChoiceKind.FULL
    seq.token_ids += [7, 7]
    kind, words = pack_one(sampler, seq)
    assert kind is ChoiceKind.BEST
    assert wide(words, place.SOURCE) == 0
    without = sequence(SamplingParams(temperature=0, min_tokens=2, ignore_eos=True))
    assert pack_one(sampler, without)[0] is ChoiceKind.BEST


def test_rows_hold_slot_and_position() -> None:
    sampler = DeviceStepSampler(NumpyDevice(VOCAB), 0)
    words = np.full((3, WORDS), -1, np.int32)
    first, second = (sequence(SamplingParams(seed=slot), slot) for slot in (3, 1))
    sampler.pack([ChoiceRow(first, 9), ChoiceRow(second, 4)], words)
    assert words[:2, place.SLOT].tolist() == [4, 2]
    assert words[:2, place.POSITION].tolist() == [9, 4]
    assert (words[2] == -1).all()


def test_tables_are_given_back() -> None:
    device = NumpyDevice(VOCAB)
    sampler = DeviceStepSampler(device, 0)
    seq = sequence(SamplingParams(presence_penalty=1.0, logit_bias={1: 1.0}))
    pack_one(sampler, seq)
    assert len(device.taken) == 3
    seq.preempted()
    pack_one(sampler, seq)
    assert len(device.taken) == 3
    pack_one(sampler, sequence(SamplingParams()))
    assert not device.taken
    pack_one(sampler, seq)
    sampler.forget(seq.request_id)
    sampler.forget(seq.request_id)
    assert not device.taken


def test_what_cannot_be_packed_is_named() -> None:
    sampler = DeviceStepSampler(NumpyDevice(VOCAB), 0)
    bad = sequence(SamplingParams(bad_token_sequences=[[1, 2]]))
    words = np.zeros((1, WORDS), np.int32)
    with pytest.raises(ValueError, match="request 0 has bad sequences and 2 unread ids"):
        sampler.pack([ChoiceRow(bad, 5)], words)
    penalised = sequence(SamplingParams(presence_penalty=1.0), 1)
    with pytest.raises(ValueError, match="begins to count at token 4, but 3 of its tokens"):
        sampler.pack([ChoiceRow(penalised, 4)], words)
    with pytest.raises(ValueError, match="logprobs is 33, at most 32"):
        sampler.pack([ChoiceRow(sequence(SamplingParams(logprobs=33), 2), 3)], words)


def test_reports_become_log_probabilities() -> None:
    device = NumpyDevice(VOCAB)
    sampler = DeviceStepSampler(device, 0)
    logits = np.random.default_rng(3).standard_normal((1, VOCAB)).astype(np.float32)
    expected = row_logprobs(logits, [7], 2)[0]
    reports = np.zeros((2, 68), np.int32)
    reals = reports.view(np.float32)
    peak = logits.max()
    reals[1, [0, 2, 3]] = logits[0, 7], peak, np.exp(logits - peak).sum()
    reports[1, 1] = expected.rank
    reports[1, 4:8:2] = expected.top_token_ids
    reals[1, 5:9:2] = logits[0, expected.top_token_ids]
    device.results.ids, device.results.reports = np.array([5, 7], np.int32), reports
    rows = [
        ChoiceRow(sequence(SamplingParams(logprobs=n), slot), 3) for slot, n in ((0, None), (1, 2))
    ]
    sampler.pack(rows, np.zeros((2, WORDS), np.int32))
    first, second = sampler.fetch().tokens()
    assert first == SampledToken(5, None)
    assert second.logprobs is not None
    assert (second.token_id, second.logprobs.rank) == (7, expected.rank)
    assert second.logprobs.top_token_ids == expected.top_token_ids
    values = [second.logprobs.logprob, *second.logprobs.top_logprobs]
    assert values == pytest.approx([expected.logprob, *expected.top_logprobs], abs=1e-5)


def test_a_row_without_any_token_reports_no_chance() -> None:
    device = NumpyDevice(VOCAB)
    sampler = DeviceStepSampler(device, 0)
    reports = np.zeros((1, 68), np.int32)
    reports.view(np.float32)[0, [0, 2]] = -np.inf
    reports[0, 1] = 1
    device.results.ids, device.results.reports = np.zeros(1, np.int32), reports
    pack_one(sampler, sequence(SamplingParams(logprobs=0)))
    assert sampler.fetch().tokens() == [SampledToken(0, TokenLogprobs(-math.inf, 1, [], []))]
