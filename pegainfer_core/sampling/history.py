"""Which ids a request has seen and generated, kept step by step for its penalties."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.engine.sequence import Sequence

__all__ = ["TokenHistory"]


class TokenHistory:
    """Distinct ids of prompt and output with their output counts.

    Follows `Sequence.token_ids`, which survives preemption; a new history catches up by itself.
    """

    def __init__(self) -> None:
        self._index: dict[int, int] = {}
        self._ids = np.empty(64, np.int64)
        self._counts = np.zeros(64, np.int32)
        self._num_read = 0

    def follow(self, sequence: Sequence) -> None:
        """Take in the tokens that were added since the last call."""
        token_ids = sequence.token_ids
        if self._num_read == len(token_ids):
            return
        num_prompt = sequence.num_prompt
        for position in range(self._num_read, len(token_ids)):
            index = self._place(token_ids[position])
            if position >= num_prompt:
                self._counts[index] += 1
        self._num_read = len(token_ids)

    @property
    def seen_ids(self) -> NDArray[np.int64]:
        """[n] distinct ids of prompt and output, in order of first use; a view."""
        return self._ids[: len(self._index)]

    @property
    def output_counts(self) -> NDArray[np.int32]:
        """[n] how often each of `seen_ids` was generated; a view."""
        return self._counts[: len(self._index)]

    def _place(self, token_id: int) -> int:
        index = self._index.get(token_id)
        if index is None:
            index = self._index[token_id] = len(self._index)
            if index == len(self._ids):
                self._ids = np.concatenate([self._ids, np.empty_like(self._ids)])
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._ids[index] = token_id
        return index
