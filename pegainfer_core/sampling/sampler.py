"""The batch front of sampling: one row of logits a sequence in, one chosen token each out.

Knows which request has which rules and seed; the choice itself is in `draw`. Rows never look at
each other.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pegainfer_core.sampling.draw import choose_token
from pegainfer_core.sampling.logprobs import row_logprobs
from pegainfer_core.sampling.mass import MAX_VOCAB_SIZE
from pegainfer_core.sampling.philox import request_seed, token_bits
from pegainfer_core.sampling.rules import LogitRules

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.contract import GenerateRequest, SamplingParams, TokenLogprobs
    from pegainfer_core.engine.sequence import Sequence

__all__ = ["NO_TOKEN", "SampledToken", "Sampler"]

_MIN_REMEMBERED = 64


NO_TOKEN: Final = -1
"""What is chosen from a row in which a logit, after rules, is NaN: its request cannot go on."""


class SampledToken(NamedTuple):
    """The chosen id or `NO_TOKEN` and, when its request asked for them, raw log-probabilities."""

    token_id: int
    logprobs: TokenLogprobs | None


@dataclass(slots=True)
class _RequestState:
    request: GenerateRequest
    rules: LogitRules
    seed: int


class Sampler:
    """Chooses tokens on the CPU; lives on the engine thread.

    A token is a pure function of (seed, sample index, position, logits, prompt + output): not of
    the batch, the row, or what ran before. An unseeded request draws with a seed made from
    `engine_seed` and its id. Per-request state is a cache over `Sequence.token_ids`: it is rebuilt
    when absent, so preemption changes nothing.

    Args:
        vocab_size: Columns of the logits.
        engine_seed: Base seed of unseeded requests.
        num_selectable: Ids from here on are never chosen (padding rows of the embedding that the
            tokenizer cannot decode); None lets every id be chosen.

    Raises:
        ValueError: `vocab_size` is not 1 to 1,048,576, or `num_selectable` not 1 to `vocab_size`.
    """

    def __init__(
        self, vocab_size: int, engine_seed: int, *, num_selectable: int | None = None
    ) -> None:
        if not 0 < vocab_size <= MAX_VOCAB_SIZE:
            raise ValueError(f"vocab_size must be 1 to {MAX_VOCAB_SIZE}, not {vocab_size}")
        if num_selectable is not None and not 0 < num_selectable <= vocab_size:
            raise ValueError(f"num_selectable must be 1 to {vocab_size}, not {num_selectable}")
        self._vocab_size = vocab_size
        self._engine_seed = engine_seed
        self._num_selectable = vocab_size if num_selectable is None else num_selectable
        self._states: OrderedDict[int, _RequestState] = OrderedDict()

    def sample(self, logits: NDArray[np.float32], sequences: list[Sequence]) -> list[SampledToken]:
        """Choose the next token of each sequence.

        Args:
            logits: [n, vocab] float32 of the last token of each sequence; overwritten.
            sequences: n sequences; the chosen token's position is `len(token_ids)`. They are only
                read: appending the token is the scheduler's part.

        Returns:
            One choice a row.

        Raises:
            ValueError: The logits' shape or type is another.
        """
        expected = (len(sequences), self._vocab_size)
        if logits.shape != expected or logits.dtype != np.float32:
            raise ValueError(
                f"logits must be float32 {expected}, not {logits.dtype} {logits.shape}"
            )
        states = [self._state(sequence) for sequence in sequences]
        self._trim(2 * len(sequences))
        if all(map(_plain, sequences, states)):
            return self._argmax(logits, sequences)
        return [self._choose(*work) for work in zip(logits, sequences, states, strict=True)]

    def forget(self, request_id: int) -> None:
        """Drop what is remembered of an ended request; unknown ids are ignored."""
        self._states.pop(request_id, None)

    def _state(self, sequence: Sequence) -> _RequestState:
        request = sequence.request
        state = self._states.get(request.request_id)
        if state is None or state.request is not request:
            seed = request.params.seed
            if seed is None:
                seed = request_seed(self._engine_seed, request.request_id)
            state = _RequestState(request, LogitRules(request), seed)
            self._states[request.request_id] = state
        self._states.move_to_end(request.request_id)
        return state

    def _trim(self, num_kept: int) -> None:
        # Nobody has to call `forget` for memory's sake: what has not sampled lately is rebuilt
        # if it comes back.
        while len(self._states) > max(num_kept, _MIN_REMEMBERED):
            self._states.popitem(last=False)

    def _argmax(self, logits: NDArray[np.float32], sequences: list[Sequence]) -> list[SampledToken]:
        logits = logits[:, : self._num_selectable]
        best = logits.argmax(axis=1)
        if np.isfinite(logits[np.arange(len(logits)), best]).all():
            return [SampledToken(token_id, None) for token_id in best.tolist()]
        rows = zip(logits, sequences, strict=True)
        return [SampledToken(_chosen(row, s.request.params, 0), None) for row, s in rows]

    def _choose(
        self, row: NDArray[np.float32], sequence: Sequence, state: _RequestState
    ) -> SampledToken:
        params = sequence.request.params
        active = state.rules.active(sequence)
        raw = row.copy() if active and params.logprobs is not None else row
        if active:
            state.rules.apply(row, sequence)
        bits = 0
        if not params.greedy:
            position = len(sequence.token_ids)
            bits = token_bits(state.seed, sequence.request.sample_index, position)
        token_id = _chosen(row[: self._num_selectable], params, bits, state.rules.fallback_id)
        if params.logprobs is None or token_id == NO_TOKEN:
            return SampledToken(token_id, None)
        return SampledToken(token_id, row_logprobs(raw[None], [token_id], params.logprobs)[0])


def _chosen(
    row: NDArray[np.float32], params: SamplingParams, bits: int, fallback_id: int = 0
) -> int:
    if math.isnan(row.max()):
        return NO_TOKEN
    return choose_token(row, params, bits, fallback_id)


def _plain(sequence: Sequence, state: _RequestState) -> bool:
    params = sequence.request.params
    return params.greedy and params.logprobs is None and not state.rules.active(sequence)
