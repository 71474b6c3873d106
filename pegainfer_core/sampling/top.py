"""The k largest entries of a row, best first, ties by ascending id, without sorting the row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["top_token_ids"]

_SIGN = np.uint32(0x80000000)
_LOW_WORD = np.uint64(0xFFFFFFFF)
_MIN_GROUPS = 1024


def top_token_ids(row: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Ids of the largest logits of one row.

    Args:
        row: [vocab] float32 without NaN; +0 and -0 are equal.
        count: How many; more than the row holds means all.

    Returns:
        [min(count, vocab)] int64, by descending logit, then ascending id.
    """
    count = min(count, len(row))
    if count <= 0:
        return np.empty(0, np.int64)
    bound = _lower_bound(row, count)
    above = np.flatnonzero(row > bound)
    best = _descending(row[above], above)[:count]
    if len(best) == count:
        return best
    # Ties at the bound, which may be many, need no sort: they are in id order already.
    return np.concatenate([best, np.flatnonzero(row == bound)[: count - len(best)]])


def _lower_bound(row: NDArray[np.float32], count: int) -> float:
    """A value that at least `count` entries reach, close to the count-th largest.

    The row is cut into more than `count` groups; the maxima of `count` groups are as many entries.
    """
    num_groups = max(_MIN_GROUPS, 4 * count)
    if len(row) < 4 * num_groups:
        return float(np.partition(row, len(row) - count)[len(row) - count])
    depth = len(row) // num_groups
    maxima = row[: depth * num_groups].reshape(depth, num_groups).max(axis=0)
    return float(np.partition(maxima, num_groups - count)[num_groups - count])


def _descending(values: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.int64]:
    # One integer sort in place of a stable two-key sort: the flipped order-preserving bits of
    # the value above, the id below. Adding zero turns -0 into +0.
    bits = (values + np.float32(0)).view(np.uint32)
    rising = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    packed = (~rising).astype(np.uint64) << np.uint64(32) | ids.astype(np.uint64)
    packed.sort()
    return (packed & _LOW_WORD).astype(np.int64)
