"""Choosing a step's tokens where their logits lie.

Packs what a device must know, keeps each request's tables there, and reads ids and reports back.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pegainfer_core.contract import TokenLogprobs
from pegainfer_core.sampling import choice_words as place
from pegainfer_core.sampling.choice_words import put_wide
from pegainfer_core.sampling.device_request import DeviceRequest
from pegainfer_core.sampling.philox import request_seed
from pegainfer_core.sampling.sampler import NO_TOKEN, SampledToken
from pegainfer_core.sampling.step_sampler import ChoiceKind, ChoiceRow, PendingTokens, StepSampler

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.backend import Batch, Tensor
    from pegainfer_core.sampling.choice_device import ChoiceDevice, PendingChoice

    IntArray = NDArray[np.int32]

__all__ = ["DeviceStepSampler"]


class DeviceStepSampler(StepSampler):
    """The choices of `Sampler`, bit for bit, on a device; may run ahead of its results.

    Args:
        device: Chooses.
        engine_seed: Base seed of unseeded requests.
    """

    runs_ahead = True

    def __init__(self, device: ChoiceDevice, engine_seed: int) -> None:
        self.next_ids = device.next_ids
        self._device = device
        self._engine_seed = engine_seed
        self._templates = np.zeros((device.num_slots, device.num_words), np.int32)
        self._requests: list[DeviceRequest | None] = [None] * device.num_slots
        self._slots: dict[int, int] = {}
        self._packed: list[int] = []
        self._masked: list[tuple[DeviceRequest, ChoiceRow]] = []

    def pack(self, rows: list[ChoiceRow], words: NDArray[np.int32]) -> ChoiceKind:
        """See `StepSampler.pack`."""
        requests = [self._request(row) for row in rows]
        slots = [row.sequence.slot for row in rows]
        count = len(rows)
        words[:count] = self._templates[slots]
        words[:count, place.POSITION] = [row.position for row in rows]
        kind = ChoiceKind.BEST
        self._masked = []
        for index, (request, row) in enumerate(zip(requests, rows, strict=True)):
            if request.kind > ChoiceKind.BEST:
                kind = max(kind, request.prepare(row, words[index]))
            if row.sequence.grammar is not None:
                address = self._device.mask_address(len(self._masked))
                put_wide(words[index], place.ALLOWED, address)
                self._masked.append((request, row))
        self._packed = [request.num_logprobs for request in requests]
        return kind

    @property
    def awaits_masks(self) -> bool:
        """See `StepSampler.awaits_masks`."""
        return bool(self._masked)

    def put_masks(self) -> None:
        """See `StepSampler.put_masks`."""
        self._device.put_masks([_mask(request, row) for request, row in self._masked])

    def choose(self, batch: Batch, logits: Tensor, kind: ChoiceKind) -> None:
        """See `StepSampler.choose`."""
        full = kind is ChoiceKind.FULL
        self._device.choose(batch, logits, draws=kind is not ChoiceKind.BEST, full=full)

    def fetch(self) -> PendingTokens:
        """See `StepSampler.fetch`."""
        packed = self._packed
        return _Pending(self._device.fetch(len(packed), reports=any(packed)), packed)

    def score(self, logits: Tensor, token_ids: list[int], top_ks: list[int]) -> list[TokenLogprobs]:
        """See `StepSampler.score`."""
        words = np.zeros((len(token_ids), self._device.num_words), np.int32)
        words[:, place.NUM_LOGPROBS] = np.array(top_ks, np.int32) + 1
        reports = self._device.score(logits, np.array(token_ids, np.int32), words)
        return [report_logprobs(*pair) for pair in zip(reports, top_ks, strict=True)]

    def forget(self, request_id: int) -> None:
        """See `StepSampler.forget`."""
        slot = self._slots.pop(request_id, None)
        if slot is not None:
            self._clear(slot)

    def _request(self, row: ChoiceRow) -> DeviceRequest:
        slot = row.sequence.slot
        found = self._requests[slot]
        if found is not None and found.serves(row.sequence):
            return found
        self._clear(slot)
        request = row.sequence.request
        seed = request.params.seed
        if seed is None:
            seed = request_seed(self._engine_seed, request.request_id)
        made = self._requests[slot] = DeviceRequest(self._device, row.sequence, seed)
        self._templates[slot] = made.words
        self._slots[request.request_id] = slot
        return made

    def _clear(self, slot: int) -> None:
        request = self._requests[slot]
        if request is not None:
            request.close()
            if self._slots.get(request.request_id) == slot:
                del self._slots[request.request_id]
        self._requests[slot] = None


class _Pending:
    def __init__(self, choice: PendingChoice, num_logprobs: list[int]) -> None:
        self._choice = choice
        self._num_logprobs = num_logprobs

    def tokens(self) -> list[SampledToken]:
        """See `PendingTokens.tokens`."""
        ids, reports = self._choice.wait()
        tokens = [SampledToken(token_id, None) for token_id in ids.tolist()]
        for index, count in enumerate(self._num_logprobs):
            if count and tokens[index].token_id != NO_TOKEN:
                scores = report_logprobs(reports[index], count - 1)
                tokens[index] = SampledToken(tokens[index].token_id, scores)
        return tokens


def _mask(request: DeviceRequest, row: ChoiceRow) -> IntArray:
    """The mask of a row, whatever it was for a row whose sequence has left meanwhile."""
    sequence = row.sequence
    if sequence.grammar is None or sequence.slot < 0 or not request.serves(sequence):
        return np.empty(0, np.int32)
    return sequence.grammar.mask(row.num_generated)


def report_logprobs(report: IntArray, top_k: int) -> TokenLogprobs:
    """What a device reported of one row; NaN where its logits are not numbers."""
    reals = report.view(np.float32)
    peak, total = float(reals[2]), float(reals[3])
    if peak == math.inf:
        return TokenLogprobs(math.nan, 0, [], [])
    normaliser = 0.0 if peak == -math.inf else peak + math.log(total)
    pairs = slice(4, 4 + 2 * top_k, 2)
    values = reals[pairs.start + 1 : pairs.stop + 1 : 2].astype(np.float64) - normaliser
    top_ids = report[pairs].tolist()
    return TokenLogprobs(float(reals[0]) - normaliser, int(report[1]), top_ids, values.tolist())
