"""The same choices on the device and on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from pegainfer_core.backend import DType
from pegainfer_core.backend.cuda.arrays import address
from pegainfer_core.contract import GenerateRequest
from pegainfer_core.engine.sequence import Sequence
from pegainfer_core.sampling import ChoiceRow, DeviceStepSampler, Sampler
from pegainfer_core.sampling.sampler import NO_TOKEN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.backend.cuda import CudaBackend
    from pegainfer_core.contract import SamplingParams
    from pegainfer_core.sampling import ChoiceKind, SampledToken

    FloatArray = NDArray[np.float32]

ENGINE_SEED: Final = 5
LOGPROB_TOLERANCE: Final = 1e-5


class Choices:
    """A device and a host sampler of one vocabulary.

    Args:
        cuda: The device.
        vocab: Columns of the logits.
        max_rows: Most rows, and slots.
        num_ids: Ids from here on cannot be chosen.
    """

    def __init__(
        self, cuda: CudaBackend, vocab: int, max_rows: int, num_ids: int | None = None
    ) -> None:
        from pegainfer_core.backend.cuda.sampling import CudaChoice  # needs CuPy

        seed = int(np.random.default_rng().integers(1 << 31))
        print("seed", seed)
        self.random = np.random.default_rng(seed)
        self._cuda = cuda
        self._vocab = vocab
        self.choice = CudaChoice(cuda.device, cuda.library, vocab, max_rows, max_rows, num_ids)
        self.sampler = DeviceStepSampler(self.choice, ENGINE_SEED)
        self._host = Sampler(vocab, ENGINE_SEED, num_selectable=num_ids)

    def sequences(self, settings: list[SamplingParams]) -> list[Sequence]:
        """Requests with prompts and up to three generated tokens, one a slot."""
        made = []
        for index, params in enumerate(settings):
            request = GenerateRequest(
                request_id=index,
                prompt_token_ids=[1 + index % 90, *range(3, 6)],
                params=params,
                eos_token_ids=[3, self._vocab + 7],
                sample_index=index % 3,
            )
            sequence = Sequence(request, max_tokens=100, slot=index)
            sequence.token_ids += [7 * index % self._vocab, 4, 5][: index % 4]
            made.append(sequence)
        return made

    def step(self, sequences: list[Sequence], logits: FloatArray, *, num_unread: int) -> ChoiceKind:
        """Choose on both, compare, and append what was chosen.

        Args:
            sequences: One a leading row.
            logits: More rows are padding.
            num_unread: Newest ids that the device's host side is not told.
        """
        expected = self._host.sample(logits[: len(sequences)].copy(), sequences)
        unread = [
            sequence.token_ids[len(sequence.token_ids) - num_unread :] for sequence in sequences
        ]
        for sequence in sequences:
            del sequence.token_ids[len(sequence.token_ids) - num_unread :]
        found, kind = self._choose(sequences, logits, num_unread)
        newest = self.newest_ids()
        for sequence, held, one, other in zip(sequences, unread, found, expected, strict=True):
            assert_same(one, other, sequence.request.params)
            # Where NaN left no token, the step behind has got some other.
            token_id = newest[sequence.slot] if other.token_id == NO_TOKEN else other.token_id
            assert 0 <= token_id < self._vocab
            sequence.token_ids += [*held, token_id]
        return kind

    def choose(self, sequences: list[Sequence], logits: FloatArray) -> list[SampledToken]:
        """Choose on the device."""
        return self._choose(sequences, logits, 0)[0]

    def newest_ids(self) -> list[int]:
        """The device's table."""
        newest = np.zeros(self.choice.num_slots, np.int32)
        self._download(newest, self.choice.next_ids)
        return newest.tolist()

    def _choose(
        self, sequences: list[Sequence], logits: FloatArray, num_unread: int
    ) -> tuple[list[SampledToken], ChoiceKind]:
        count = len(logits)
        words = np.zeros((count, self.choice.num_words), np.int32)
        rows = [ChoiceRow(s, len(s.token_ids) + num_unread) for s in sequences]
        kind = self.sampler.pack(rows, words)
        if self.sampler.awaits_masks:
            self.sampler.put_masks()
        held = self._cuda.adopt(logits.copy(), DType.FLOAT32)
        described = self._cuda.adopt(words.view(np.float32), DType.FLOAT32)
        self.choice.choose_rows(
            count, address(held), address(described), draws=kind > 0, full=kind > 1
        )
        tokens = self.sampler.fetch().tokens()
        after = self._cuda.to_host(held, count)
        np.testing.assert_array_equal(after.view(np.int32), logits.view(np.int32))
        return tokens, kind

    def _download(self, target: NDArray[np.int32], source: int) -> None:
        from pegainfer_core.backend.cuda.device import host_address  # needs CuPy

        self._cuda.device.download(host_address(target), source, target.nbytes)
        self._cuda.device.synchronize()


def assert_same(found: SampledToken, expected: SampledToken, params: SamplingParams) -> None:
    """Equal ids, ranks and most likely ids; log-probabilities within rounding."""
    assert found.token_id == expected.token_id, params
    if expected.logprobs is None:
        assert found.logprobs is None
        return
    assert found.logprobs is not None
    assert found.logprobs.rank == expected.logprobs.rank, params
    assert found.logprobs.top_token_ids == expected.logprobs.top_token_ids, params
    values, wanted = (
        [scores.logprob, *scores.top_logprobs] for scores in (found.logprobs, expected.logprobs)
    )
    assert values == pytest.approx(wanted, abs=LOGPROB_TOLERANCE, rel=LOGPROB_TOLERANCE), params
