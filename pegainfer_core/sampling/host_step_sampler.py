"""Choosing a step's tokens from logits that the host can see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.sampling.logprobs import row_logprobs
from pegainfer_core.sampling.step_sampler import ChoiceKind, ChoiceRow, PendingTokens, StepSampler

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pegainfer_core.backend import Backend, Batch, Tensor
    from pegainfer_core.contract import TokenLogprobs
    from pegainfer_core.sampling.sampler import SampledToken, Sampler

__all__ = ["HostStepSampler"]


class HostStepSampler(StepSampler):
    """Reads whole rows of logits and chooses with a `Sampler`; never ahead of the results.

    Args:
        sampler: Chooses.
        backend: Where the logits lie.
    """

    runs_ahead = False
    next_ids = None

    def __init__(self, sampler: Sampler, backend: Backend) -> None:
        self._sampler = sampler
        self._backend = backend
        self._rows: list[ChoiceRow] = []
        self._chosen: list[SampledToken] = []

    def pack(self, rows: list[ChoiceRow], words: NDArray[np.int32]) -> ChoiceKind:
        """See `StepSampler.pack`; the words stay unused."""
        for row in rows:
            if row.position != len(row.sequence.token_ids):
                raise ValueError(
                    f"request {row.sequence.request_id} chooses token {row.position}, but "
                    f"{len(row.sequence.token_ids)} of its tokens are known"
                )
        self._rows = rows
        return ChoiceKind.FULL

    def choose(self, batch: Batch, logits: Tensor, kind: ChoiceKind) -> None:
        """See `StepSampler.choose`; without packed rows, in a warm-up, nothing is chosen."""
        values = self._backend.to_host(logits, len(self._rows))
        self._chosen = self._sampler.sample(values, [row.sequence for row in self._rows])

    def fetch(self) -> PendingTokens:
        """See `StepSampler.fetch`."""
        return _Read(self._chosen)

    def score(self, logits: Tensor, token_ids: list[int], top_ks: list[int]) -> list[TokenLogprobs]:
        """See `StepSampler.score`."""
        values = self._backend.to_host(logits, len(token_ids))
        rows = zip(values, token_ids, top_ks, strict=True)
        return [row_logprobs(row[None], [token_id], top_k)[0] for row, token_id, top_k in rows]

    def forget(self, request_id: int) -> None:
        """See `StepSampler.forget`."""
        self._rows = []
        self._sampler.forget(request_id)


class _Read:
    def __init__(self, chosen: list[SampledToken]) -> None:
        self._chosen = chosen

    def tokens(self) -> list[SampledToken]:
        """See `PendingTokens.tokens`."""
        return self._chosen
