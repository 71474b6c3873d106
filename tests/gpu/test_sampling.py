"""Tokens chosen on the device are those the host chooses, on fresh random logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from pegainfer_core.contract import SamplingParams
from pegainfer_core.sampling import ChoiceKind, ChoiceRow
from tests.gpu.choices import Choices

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pegainfer_core.backend.cuda import CudaBackend

    FloatArray = NDArray[np.float32]
    MakeLogits = Callable[[np.random.Generator, int, int], FloatArray]

pytestmark = pytest.mark.gpu

P = SamplingParams
DRAWS = [
    P(),
    P(temperature=0),
    P(seed=2, top_k=5),
    P(seed=3, top_p=0.9),
    P(seed=4, top_k=50, top_p=0.8, temperature=0.7),
    P(seed=5, min_p=0.05),
    P(seed=6, top_p=0.5, min_p=0.3),
    P(seed=7, temperature=2.0, top_p=0.97),
    P(top_k=700, top_p=0.95, min_p=0.001),
    P(temperature=0.05, top_p=0.99),
    P(top_p=1e-9),
    P(seed=9, top_p=0.3, temperature=50.0),
    P(top_k=6000, temperature=1.5),
    P(seed=2**64 - 1, top_k=50000, top_p=0.99),
    P(temperature=1e6, top_p=0.6, seed=-3),
]
RULES = [
    P(temperature=0, repetition_penalty=1.3),
    P(seed=1, presence_penalty=0.7, frequency_penalty=-0.3, repetition_penalty=0.8, logprobs=0),
    P(seed=2, logit_bias={5: 3.0, 9: -20.0, 3: 4.0}, logprobs=3, min_tokens=2),
    P(seed=3, allowed_token_ids=[7, 8, 60, 61], top_p=0.9),
    P(temperature=0, bad_token_sequences=[[4], [1, 2], [3, 5, 6]], logprobs=20),
    P(seed=4, logit_bias={4: 100.0}, bad_token_sequences=[[4]], allowed_token_ids=[4]),
    P(logprobs=5, top_p=0.7),
    P(temperature=0, logprobs=2, stop_token_ids=[1, 2], min_tokens=50, frequency_penalty=1.0),
    P(seed=8, allowed_token_ids=list(range(0, 96, 2)), top_k=7, presence_penalty=2.0),
]


def normal(scale: float) -> MakeLogits:
    def make(rng: np.random.Generator, rows: int, vocab: int) -> FloatArray:
        return rng.standard_normal((rows, vocab), np.float32) * np.float32(scale)

    return make


def ties(rng: np.random.Generator, rows: int, vocab: int) -> FloatArray:
    return rng.integers(-6, 6, (rows, vocab)).astype(np.float32) / np.float32(2)


def flat(rng: np.random.Generator, rows: int, vocab: int) -> FloatArray:
    return np.full((rows, vocab), rng.normal(), np.float32)


def odd(rng: np.random.Generator, rows: int, vocab: int) -> FloatArray:
    """NaN, infinities, rows without a token, zeros of both signs; every kind in turn."""
    logits = rng.standard_normal((rows, vocab), np.float32) * np.float32(3)
    logits[0::7] = -np.inf
    logits[1::7, ::3] = np.nan
    logits[2::7, 5:9] = np.inf
    logits[3::7, :-1] = -np.inf
    logits[4::7] = np.nan
    logits[5::7] = 0
    logits[5::7, ::2] = -0.0
    return logits


@pytest.mark.parametrize("vocab", [97, 1000, 151936])
@pytest.mark.parametrize(
    "make", [normal(1), normal(4), ties, flat, odd], ids=["n1", "n4", "ties", "flat", "odd"]
)
def test_every_setting_in_one_batch(cuda: CudaBackend, vocab: int, make: MakeLogits) -> None:
    num_rows = 26 if vocab > 1000 else 256
    choices = Choices(cuda, vocab, num_rows)
    mixed = [P(temperature=0, logprobs=20), *DRAWS, *RULES]
    sequences = choices.sequences([mixed[i % len(mixed)] for i in range(num_rows)])
    for _ in range(3):
        logits = make(choices.random, num_rows, vocab)
        assert choices.step(sequences, logits, num_unread=0) is ChoiceKind.FULL


@pytest.mark.parametrize("num_rows", [1, 2, 33, 256])
def test_batches_of_any_size(cuda: CudaBackend, num_rows: int) -> None:
    choices = Choices(cuda, 151936, num_rows)
    sequences = choices.sequences([DRAWS[i % len(DRAWS)] for i in range(num_rows)])
    kind = choices.step(sequences, normal(2)(choices.random, num_rows, 151936), num_unread=0)
    assert kind is ChoiceKind.DRAW


@pytest.mark.parametrize("num_rows", [1, 64, 256])
def test_greedy_batches(cuda: CudaBackend, num_rows: int) -> None:
    choices = Choices(cuda, 151936, num_rows)
    sequences = choices.sequences([P(temperature=0)] * num_rows)
    for make in (normal(2), odd):
        logits = make(choices.random, num_rows, 151936)
        assert choices.step(sequences, logits, num_unread=0) is ChoiceKind.BEST


def test_steps_ahead_of_their_results(cuda: CudaBackend) -> None:
    """The id before is known to the device alone, whatever reads it: penalties, bad sequences."""
    vocab = 97
    choices = Choices(cuda, vocab, 18)
    pairs = [[i, j] for i in range(40) for j in range(vocab)]
    settings = [*RULES, *(P(seed=i, bad_token_sequences=[*pairs, [1, 2, 3]]) for i in range(9))]
    sequences = choices.sequences(settings)
    choices.step(sequences, normal(2)(choices.random, 18, vocab), num_unread=0)
    for _ in range(8):
        choices.step(sequences, normal(2)(choices.random, 18, vocab), num_unread=1)
    assert choices.newest_ids()[:18] == [s.token_ids[-1] for s in sequences]


def test_alone_and_batched(cuda: CudaBackend) -> None:
    vocab, mates = 1000, [*DRAWS, *RULES]
    choices = Choices(cuda, vocab, len(mates))
    logits = normal(2)(choices.random, len(mates), vocab)
    together = choices.choose(choices.sequences(mates), logits)
    for index, params in enumerate(mates):
        sequence = choices.sequences(mates)[index]
        assert choices.choose([sequence], logits[index : index + 1]) == [together[index]], params


def test_ids_that_cannot_be_chosen(cuda: CudaBackend) -> None:
    choices = Choices(cuda, 1000, 24, num_ids=987)
    sequences = choices.sequences([*DRAWS, *RULES])
    logits = normal(2)(choices.random, 24, 1000)
    logits[:, 987:] += 30
    choices.step(sequences, logits, num_unread=0)


def test_a_preempted_request_counts_again(cuda: CudaBackend) -> None:
    vocab, params = 97, P(seed=3, presence_penalty=1.0, frequency_penalty=1.0)
    choices = Choices(cuda, vocab, 2)
    sequences = choices.sequences([params, params])
    for number in range(6):
        if number == 3:
            sequences[0].preempted()
            sequences[0].slot, sequences[1].slot = sequences[1].slot, sequences[0].slot
            sequences[1].preempted()
        choices.step(sequences, normal(1)(choices.random, 2, vocab), num_unread=0)


def test_padding_rows_leave_the_newest_ids_alone(cuda: CudaBackend) -> None:
    choices = Choices(cuda, 97, 4)
    sequences = choices.sequences([P(), P(seed=1)])
    before = choices.newest_ids()
    choices.step(sequences, normal(1)(choices.random, 4, 97), num_unread=0)
    after = choices.newest_ids()
    assert [after[s.slot] for s in sequences] == [s.token_ids[-1] for s in sequences]
    assert after[2:] == before[2:]


def test_what_must_be_known_is_named(cuda: CudaBackend) -> None:
    choices = Choices(cuda, 97, 1)
    (sequence,) = choices.sequences([P(presence_penalty=1.0)])
    words = np.zeros((1, 32), np.int32)
    with pytest.raises(ValueError, match="begins to count at token 5, but 4 of its tokens"):
        choices.sampler.pack([ChoiceRow(sequence, 5)], words)
