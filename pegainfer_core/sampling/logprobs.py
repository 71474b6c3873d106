"""Raw log-probabilities: log-softmax of the model's own logits, untouched by sampling settings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pegainfer_core.contract import TokenLogprobs
from pegainfer_core.sampling.draw import clean
from pegainfer_core.sampling.top import top_token_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["row_logprobs"]


def row_logprobs(
    logits: NDArray[np.float32], chosen_ids: Sequence[int], top_k: int
) -> list[TokenLogprobs]:
    """Log-probabilities of one given token a row, its rank, and the most likely tokens.

    The log-sum-exp is accumulated in double precision. A log-probability may be -inf; all that is
    said of a row that holds NaN is NaN.

    Args:
        logits: [n, vocab] float32, left as they are.
        chosen_ids: n ids, the generated or the given prompt tokens.
        top_k: Number of most likely tokens to report; 0 reports the chosen one alone.

    Returns:
        One entry a row.
    """
    return [_one(row, chosen_id, top_k) for row, chosen_id in zip(logits, chosen_ids, strict=True)]


def _one(row: NDArray[np.float32], chosen_id: int, top_k: int) -> TokenLogprobs:
    peak = row.max()
    if math.isnan(peak):
        return TokenLogprobs(math.nan, 0, [], [])
    if not math.isfinite(peak):
        row = row.copy()
        clean(row)
        peak = row.max()
    normaliser = _log_sum_exp(row, peak)
    chosen = row[chosen_id]
    rank = 1 + np.count_nonzero(row > chosen) + np.count_nonzero(row[:chosen_id] == chosen)
    top_ids = top_token_ids(row, top_k)
    return TokenLogprobs(
        float(chosen) - normaliser,
        int(rank),
        top_ids.tolist(),
        (row[top_ids].astype(np.float64) - normaliser).tolist(),
    )


def _log_sum_exp(row: NDArray[np.float32], peak: np.float32) -> float:
    if peak == -np.inf:
        return 0.0  # Every token is impossible: each log-probability stays -inf.
    with np.errstate(over="ignore", under="ignore"):
        total = np.exp(row - peak).sum(dtype=np.float64)
    return float(peak) + math.log(total)
