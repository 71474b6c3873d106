"""Tokens chosen by interpreted kernels, beside those that the host chooses."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from pegainfer_core.contract import GenerateRequest, SamplingParams
from pegainfer_core.engine.sequence import Sequence
from pegainfer_core.sampling import ChoiceRow, DeviceStepSampler, Sampler, row_logprobs
from pegainfer_core.sampling import choice_words as place
from pegainfer_core.sampling.device_step_sampler import report_logprobs
from pegainfer_core.sampling.sampler import NO_TOKEN
from tests.kernels.interpreted.host import HostDevice, HostLibrary, array, stand_in_for_cupy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.backend.cuda.sampling import CudaChoice

ENGINE_SEED = 5
P = SamplingParams
SETTINGS = (
    P(temperature=0),
    P(temperature=0, logprobs=3),
    P(seed=3),
    P(seed=4, top_k=5, logprobs=0),
    P(seed=5, top_p=0.6),
    P(seed=6, min_p=0.1, repetition_penalty=1.3),
    P(temperature=0, logit_bias={3: 4.0}, logprobs=2),
    P(seed=7, allowed_token_ids=[2, 9, 40]),
)


class Memory(HostDevice):
    """What choices ask of a device beside what ops do."""

    def fill(self, target: int, value: int, num_bytes: int) -> None:
        ctypes.memset(target, value, num_bytes)

    def download(self, target: int, source: int, num_bytes: int) -> None:
        ctypes.memmove(target, source, num_bytes)


class Library(HostLibrary):
    """All kernels are there."""

    def prepare(self, specs: object) -> None:
        return


def run(vocab: int, broken: bool) -> None:
    """Every setting, with NaN in some rows where `broken`; fails where the two differ."""
    stand_in_for_cupy()
    from pegainfer_core.backend.cuda.sampling import CudaChoice  # needs what stands in for CuPy

    random = np.random.default_rng()
    device, count = Memory(), len(SETTINGS)
    choice = CudaChoice(device, Library(), vocab, count, count)  # type: ignore[arg-type]
    sampler, host = DeviceStepSampler(choice, ENGINE_SEED), Sampler(vocab, ENGINE_SEED)
    sequences = [_sequence(index, params) for index, params in enumerate(SETTINGS)]
    logits = (3 * random.standard_normal((count, vocab))).astype(np.float32)
    if broken:
        logits[::2, vocab // 2] = np.nan
        logits[1] = np.nan
        logits[3] = -np.inf
        logits[7, 2::2] = np.nan
    words = np.zeros((count, choice.num_words), np.int32)
    kind = sampler.pack([ChoiceRow(each, len(each.token_ids)) for each in sequences], words)
    held, described = device.tensor(logits), device.tensor(words.view(np.float32))
    addresses = [tensor.storage.address for tensor in (held, described)]  # type: ignore[attr-defined]
    choice.choose_rows(count, *addresses, draws=kind > 0, full=kind > 1)
    found = sampler.fetch().tokens()
    expected = host.sample(logits.copy(), sequences)
    np.testing.assert_array_equal(array(held), logits)
    newest = np.zeros(count, np.int32)
    device.download(newest.ctypes.data, choice.next_ids, newest.nbytes)
    for index, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one.token_id == other.token_id, (SETTINGS[index], one, other)
        assert one.token_id in (newest[index], NO_TOKEN) and 0 <= newest[index] < vocab
        assert (one.logprobs is None) == (other.logprobs is None)
        if one.logprobs is not None and other.logprobs is not None:
            assert one.logprobs.top_token_ids == other.logprobs.top_token_ids
            assert one.logprobs.rank == other.logprobs.rank
            np.testing.assert_allclose(one.logprobs.logprob, other.logprobs.logprob, atol=1e-5)
    _score(choice, addresses[0], logits, random)
    num_broken = sum(token.token_id == NO_TOKEN for token in found)
    assert (num_broken >= 5) if broken else num_broken == 0


def _score(
    choice: CudaChoice,
    logits_at: int,
    logits: NDArray[np.float32],
    random: np.random.Generator,
) -> None:
    """Given tokens, more of them than rows choose at once; what holds NaN has no score."""
    token_ids = random.integers(0, logits.shape[1], len(logits)).astype(np.int32)
    top_ks = [index % 4 for index in range(len(logits))]
    words = np.zeros((len(logits), choice.num_words), np.int32)
    words[:, place.NUM_LOGPROBS] = np.array(top_ks) + 1
    choice._max_rows = 3  # Several launches.
    reports = choice.score_rows(logits_at, token_ids, words)
    for index, (report, token_id, top_k) in enumerate(zip(reports, token_ids, top_ks, strict=True)):
        found = report_logprobs(report, top_k)
        (expected,) = row_logprobs(logits[index : index + 1], [int(token_id)], top_k)
        assert found.rank == expected.rank and found.top_token_ids == expected.top_token_ids
        np.testing.assert_allclose(found.logprob, expected.logprob, atol=1e-5)
        np.testing.assert_allclose(found.top_logprobs, expected.top_logprobs, atol=1e-5)


def _sequence(index: int, params: SamplingParams) -> Sequence:
    request = GenerateRequest(
        request_id=index, prompt_token_ids=[1 + index, 3, 4], params=params, sample_index=index % 3
    )
    return Sequence(request, max_tokens=100, slot=index)
