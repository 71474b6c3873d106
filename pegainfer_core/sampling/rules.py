"""What one request does to its logits before a token is chosen: masks, bias, penalties.

The order is vLLM's documented one: allowed ids, bad sequences, min_tokens, logit_bias, then the
repetition, frequency and presence penalties. So a bias is seen by the repetition penalty, and no
bias lifts a mask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pegainfer_core.sampling.history import TokenHistory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.contract import GenerateRequest
    from pegainfer_core.engine.sequence import Sequence

__all__ = ["LogitRules"]


class LogitRules:
    """The rules of one request, and the token history they need.

    Args:
        request: Its params and end ids; with `ignore_eos` the model's end ids end nothing and are
            not masked by min_tokens, the client's stop ids are.

    Attributes:
        fallback_id: The choice when masks leave nothing: the lowest allowed id, else 0.
    """

    def __init__(self, request: GenerateRequest) -> None:
        params = request.params
        self._params = params
        self._allowed = None if params.allowed_token_ids is None else _ids(params.allowed_token_ids)
        self._bad = _ids([s[0] for s in params.bad_token_sequences if len(s) == 1])
        self._bad_sequences = [s for s in params.bad_token_sequences if len(s) > 1]
        end_ids = [] if params.ignore_eos else request.eos_token_ids
        self._ends = _ids([i for i in (*end_ids, *params.stop_token_ids) if i >= 0])
        self._bias_ids = _ids(list(params.logit_bias))
        self._bias = np.array(list(params.logit_bias.values()), np.float32)
        penalised = (
            params.repetition_penalty != 1
            or params.presence_penalty != 0
            or params.frequency_penalty != 0
        )
        self._history = TokenHistory() if penalised else None
        self._always = bool(
            penalised
            or params.structured is not None
            or self._allowed is not None
            or params.bad_token_sequences
            or params.logit_bias
        )
        self.fallback_id = 0 if self._allowed is None else int(self._allowed.min())

    def active(self, sequence: Sequence) -> bool:
        """Whether `apply` may change this step's logits."""
        return self._always or sequence.num_generated < self._params.min_tokens

    def apply(self, row: NDArray[np.float32], sequence: Sequence) -> None:
        """Change one row of logits in place.

        Args:
            row: [vocab] float32.
            sequence: Prompt and the output so far.
        """
        self._mask(row, sequence)
        if len(self._bias_ids):
            row[self._bias_ids] += self._bias
        if self._history is not None:
            self._history.follow(sequence)
            self._penalise(row, self._history)

    def _mask(self, row: NDArray[np.float32], sequence: Sequence) -> None:
        if sequence.grammar is not None:
            # It holds what the other masks say.
            bits = sequence.grammar.mask(sequence.num_generated).view(np.uint8)
            row[np.unpackbits(bits, count=len(row), bitorder="little") == 0] = -np.inf
            return
        if self._allowed is not None:
            allowed = row[self._allowed]
            row.fill(-np.inf)
            row[self._allowed] = allowed
        row[self._bad] = -np.inf
        for *prefix, last in self._bad_sequences:
            fits = len(prefix) <= sequence.num_generated
            if fits and sequence.token_ids[-len(prefix) :] == prefix:
                row[last] = -np.inf
        if sequence.num_generated < self._params.min_tokens:
            # Files may name end ids that the model has no logit for; they cannot come anyway.
            row[self._ends[self._ends < len(row)]] = -np.inf

    def _penalise(self, row: NDArray[np.float32], history: TokenHistory) -> None:
        params = self._params
        ids = history.seen_ids
        logits = row[ids]
        if params.repetition_penalty != 1:
            penalty = np.float32(params.repetition_penalty)
            # A penalty that is 0 as float32 divides by it, and 0 / 0 is not taken by `where`.
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                logits = np.where(logits > 0, logits / penalty, logits * penalty)
        counts = history.output_counts
        logits -= np.float32(params.frequency_penalty) * counts.astype(np.float32)
        logits -= np.float32(params.presence_penalty) * (counts > 0).astype(np.float32)
        row[ids] = logits


def _ids(token_ids: list[int]) -> NDArray[np.int64]:
    return np.array(token_ids, np.int64)
