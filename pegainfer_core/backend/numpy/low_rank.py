"""What one adapter adds to one product, on arrays. Knows no tensor and no slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pegainfer_core.backend.numpy.kernels import round_bfloat16

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.backend.numpy.arrays import FloatArray


class LowRank(NamedTuple):
    """Matrices of one adapter.

    Attributes:
        down: [parts * room, k].
        up: [n, room].
        widths: Outputs of each part.
        rank: Ranks in use, of the room for them.
        scale: What the products are multiplied with.
    """

    down: FloatArray
    up: FloatArray
    widths: tuple[int, ...]
    rank: int
    scale: np.float32


def add_low_rank(
    x: FloatArray, tokens: NDArray[np.int64], matrices: LowRank, out: FloatArray, rounds: bool
) -> None:
    """Add to some rows of `out`.

    Args:
        x: [rows, k].
        tokens: Which rows.
        matrices: Of their adapter.
        out: [rows, n].
        rounds: To bfloat16.
    """
    down, up, widths, rank, scale = matrices
    rows, room, begin = x[tokens], up.shape[1], 0
    sums = out[tokens]
    for part, width in enumerate(widths):
        shrunk = rows @ down[part * room : part * room + rank].T
        if rounds:
            round_bfloat16(shrunk, np.empty_like(shrunk))
        added = shrunk @ up[begin : begin + width, :rank].T
        added *= scale
        sums[:, begin : begin + width] += added
        begin += width
    if rounds:
        round_bfloat16(sums, np.empty_like(sums))
    out[tokens] = sums
