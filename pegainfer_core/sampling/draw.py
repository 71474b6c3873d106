"""Choosing one token from one row of processed logits: filters, then the draw.

Pure: the result depends on the logits, the parameters and 64 random bits. Knows nothing of
requests, masks or penalties.

The kept set is defined so that a kernel finds it with selections and sums alone, no full sort:

- top_k keeps the k largest logits, ties by ascending id;
- top_p keeps, in order of descending mass and ascending id, every token whose predecessors' mass
  is below ceil(top_p * total), at most total, the mass that top_k left;
- min_p keeps masses of at least ceil(min_p * the peak's mass).

The draw is an inverse CDF in ascending id order: with T the kept mass, the first token at which the
running sum exceeds floor(T * bits / 2**64). All of it is integer arithmetic on `token_masses`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pegainfer_core.sampling.mass import PEAK_MASS, token_masses
from pegainfer_core.sampling.top import top_token_ids

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.contract import SamplingParams

__all__ = ["choose_token", "clean"]

_BLOCK_TOKENS = 1024
_SORTABLE_TOKENS = 2048
_LARGEST = np.finfo(np.float32).max


def choose_token(
    row: NDArray[np.float32], params: SamplingParams, bits: int, fallback_id: int = 0
) -> int:
    """Choose the next token of one row.

    Args:
        row: [vocab] float32 logits after masks, bias and penalties. NaN counts as -inf, +inf as
            the largest finite number; a row that holds such values is overwritten.
        params: temperature, top_k, top_p and min_p are read; greedy ones ignore `bits`.
        bits: 64 random bits, `token_bits`.
        fallback_id: The choice when every logit is -inf.

    Returns:
        The id; the lowest one of the largest logits when greedy.
    """
    best = int(row.argmax())
    if not math.isfinite(row[best]):
        clean(row)
        best = int(row.argmax())
        if row[best] == -np.inf:
            return fallback_id
    # A nucleus of at most an even share holds one token; decided here, so that no rounding of
    # near ties can make it another one than the argmax.
    if params.greedy or params.top_p * len(row) <= 1:
        return best
    return _draw(row, row[best], params, bits)


def clean(row: NDArray[np.float32]) -> None:
    """Make NaN -inf and +inf the largest finite float32, in place."""
    row[np.isnan(row)] = -np.inf
    np.minimum(row, _LARGEST, out=row)


def _draw(row: NDArray[np.float32], peak: np.float32, params: SamplingParams, bits: int) -> int:
    ids: NDArray[np.int64] | None = None
    if 0 < params.top_k < len(row):
        ids = np.sort(top_token_ids(row, params.top_k))
        row = row[ids]
    masses = token_masses(row, peak, params.temperature)
    if params.top_p < 1:
        _keep_nucleus(masses, params.top_p)
    if params.min_p > 0:
        masses[masses < math.ceil(params.min_p * PEAK_MASS)] = 0
    index = _inverse_cdf(masses, bits)
    return index if ids is None else int(ids[index])


def _inverse_cdf(masses: NDArray[np.int64], bits: int) -> int:
    # Block sums first: a running sum over a whole vocabulary would touch fresh memory for nothing.
    starts = np.arange(0, len(masses), _BLOCK_TOKENS)
    sums = np.cumsum(np.add.reduceat(masses, starts))
    target = int(sums[-1]) * bits >> 64
    block = int(np.searchsorted(sums, target, side="right"))
    if block:
        target -= int(sums[block - 1])
    start = int(starts[block])
    inside = np.cumsum(masses[start : start + _BLOCK_TOKENS])
    return start + int(np.searchsorted(inside, target, side="right"))


def _keep_nucleus(masses: NDArray[np.int64], top_p: float) -> None:
    """Zero what lies outside the smallest set whose mass reaches `top_p` of the whole."""
    total = int(masses.sum())
    limit = min(max(math.ceil(top_p * total), 1), total)
    # All tokens of at most this mass weigh no more than total - limit together, so the lightest
    # kept token is among the others; halving their range leaves few to sort.
    floor = (total - limit) // len(masses)
    values = masses[masses > floor]
    while len(values) > _SORTABLE_TOKENS:
        low, high = int(values.min()), int(values.max())
        if low == high:
            break
        pivot = min(math.isqrt(low * high), high - 1)
        heavy = values[values > pivot]
        heavy_mass = int(heavy.sum())
        if heavy_mass < limit:
            limit -= heavy_mass
            heavy = values[values <= pivot]
        values = heavy
    values.sort()
    falling = values[::-1]
    lightest = int(falling[np.searchsorted(np.cumsum(falling), limit)])
    limit -= int(falling[falling > lightest].sum())
    num_ties = -(-limit // lightest)
    masses[masses < lightest] = 0
    masses[np.flatnonzero(masses == lightest)[num_ties:]] = 0
