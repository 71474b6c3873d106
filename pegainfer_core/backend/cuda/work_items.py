"""How a step's attention is cut into pieces of work for a fixed grid. Pure host arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    IntArray = NDArray[np.int32]


class DecodeItems(NamedTuple):
    """Parts of contexts.

    Attributes:
        items: [n, 3]: row, first position, end position.
        row_items: [rows + 1]: first item of each row, and the end.
    """

    items: IntArray
    row_items: IntArray


def decode_items(contexts: IntArray, target: int, block: int) -> DecodeItems:
    """Cut the contexts of decoding rows into parts of about equal length.

    Args:
        contexts: [rows] tokens, each at least 1.
        target: About how many parts keep the device busy.
        block: Parts are multiples of this many tokens, except a row's last.

    Returns:
        At most rows + `target` parts, none of them empty.
    """
    wide = contexts.astype(np.int64)
    part = max(-(-int(wide.sum()) // (target * block)), 1) * block
    parts = -(-wide // part)
    even = -(-wide // (parts * block)) * block
    row_items = np.zeros(len(wide) + 1, np.int64)
    np.cumsum(parts, out=row_items[1:])
    rows = np.repeat(np.arange(len(wide)), parts)
    begin = (np.arange(row_items[-1]) - row_items[rows]) * even[rows]
    end = np.minimum(begin + even[rows], wide[rows])
    items = np.stack([rows, begin, end], axis=1)
    return DecodeItems(items.astype(np.int32), row_items.astype(np.int32))


def prefill_tiles(counts: IntArray, first_row: int, tile: int) -> IntArray:
    """Cut the query tokens of prefilling rows into tiles, the longest contexts' last.

    Args:
        counts: [rows] query tokens.
        first_row: Number of the first of these rows in the step.
        tile: Query tokens in a tile.

    Returns:
        [n, 2]: row, first query token of the tile in its row. A row's late tiles, which see most
        keys, come first, so that the device does not end with them.
    """
    tiles = -(-counts.astype(np.int64) // tile)
    ends = np.cumsum(tiles)
    rows = np.repeat(np.arange(len(counts)), tiles)
    number = ends[rows] - 1 - np.arange(len(rows))
    return np.stack([rows + first_row, number * tile], axis=1).astype(np.int32)
