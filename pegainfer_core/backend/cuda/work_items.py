"""How a step's attention is cut into pieces of work for a fixed grid. Pure host arithmetic."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pegainfer_core.kernels.catalog import (
    DECODE_BLOCK,
    DECODE_ITEM_INTS,
    PREFILL_BLOCK,
    prefill_tile,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    IntArray = NDArray[np.int32]
    IntArray64 = NDArray[np.int64]

_CTAS_A_MULTIPROCESSOR: Final = 2

_MIN_PART_BLOCKS: Final = 2
"""Joining a shorter part costs more than it saves."""

_JOIN_BLOCKS: Final = 2
"""What joining costs, in blocks."""

_SHARES: Final = (1.25, 1, 0.75, 0.5)
"""Lengths of parts that are tried, in shares of the work for one place on the device."""


class DecodeItems(NamedTuple):
    """Parts of contexts.

    Attributes:
        items: [n, 8]: row, first position, end position, where the row's page table begins, the
            row's first part, its parts, its last position, and nothing.
        row_items: [rows + 1]: first item of each row, and the end.
    """

    items: IntArray
    row_items: IntArray


def decode_items(contexts: IntArray, page_starts: IntArray, target: int, block: int) -> DecodeItems:
    """Cut the contexts of decoding rows into parts of about equal length.

    Args:
        contexts: [rows] tokens, each at least 1.
        page_starts: [rows] where each row's page table begins.
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
    items = np.zeros((len(rows), DECODE_ITEM_INTS), np.int32)
    items[:, 0] = rows
    items[:, 1] = (np.arange(len(rows)) - row_items[rows]) * even[rows]
    items[:, 2] = np.minimum(items[:, 1] + even[rows], wide[rows])
    items[:, 3] = page_starts[rows]
    items[:, 4] = row_items[rows]
    items[:, 5] = parts[rows]
    items[:, 6] = wide[rows] - 1
    return DecodeItems(items, row_items.astype(np.int32))


class PrefillLimits(NamedTuple):
    """How the attention of prefilling rows is cut.

    Attributes:
        tile: Query tokens in a tile.
        block: Parts of a tile's keys begin at multiples of this many.
        target: Pieces that keep the device busy.
    """

    tile: int
    block: int
    target: int


class AttentionLimits(NamedTuple):
    """How attention work is cut.

    Attributes:
        target_items: Parts of contexts that keep the device busy.
        item_block: Positions that parts are multiples of.
        prefill: How prefilling rows are cut.
    """

    target_items: int
    item_block: int
    prefill: PrefillLimits

    @classmethod
    def of(cls, num_multiprocessors: int, num_kv_heads: int, group: int) -> AttentionLimits:
        """Such that a device's multiprocessors are busy.

        Args:
            num_multiprocessors: Of the device.
            num_kv_heads: Of the model; each has programs of its own.
            group: Query heads a key head, at most.
        """
        ctas = _CTAS_A_MULTIPROCESSOR * num_multiprocessors
        return cls(
            target_items=max(ctas // num_kv_heads, 1),
            item_block=DECODE_BLOCK,
            prefill=PrefillLimits(
                tile=prefill_tile(group),
                block=PREFILL_BLOCK,
                target=max(num_multiprocessors // num_kv_heads, 1),
            ),
        )


def max_prefill_items(max_rows: int, max_tokens: int, limits: PrefillLimits) -> int:
    """Most pieces of a step."""
    return max_rows + max_tokens // limits.tile + max_split_parts(limits)


def max_split_parts(limits: PrefillLimits) -> int:
    """Most parts of a step's tiles that are split at all."""
    return 4 * limits.target


def prefill_items(
    row_starts: IntArray, contexts: IntArray, page_starts: IntArray, limits: PrefillLimits
) -> IntArray:
    """Cut the query tokens of prefilling rows into tiles, and few tiles' keys into parts.

    Args:
        row_starts: [rows + 1] first query token of each row in the step, and the end.
        contexts: [rows] keys that the last query of each row sees.
        page_starts: [rows] where each row's page table begins.
        limits: Sizes of the pieces.

    Returns:
        [n, 8]: first query token in the step, how many, position of the first, first key, end of
        the keys, page table, number of the first part of the tile (0 unless there are parts), and
        part | parts << 16. Those with most keys come first, so that the device does not end with
        them.
    """
    starts, tile = row_starts.astype(np.int64), limits.tile
    counts = np.diff(starts)
    tiles = -(-counts // tile)
    rows = np.repeat(np.arange(len(counts)), tiles)
    first = (np.arange(len(rows)) - (np.cumsum(tiles) - tiles)[rows]) * tile
    taken = np.minimum(counts[rows] - first, tile)
    position = contexts[rows] - counts[rows] + first
    end = position + taken
    size, parts = _part_sizes(end, limits)
    number = np.where(parts > 1, np.cumsum(np.where(parts > 1, parts, 0)) - parts, 0)
    which = np.repeat(np.arange(len(rows)), parts)
    part = np.arange(len(which)) - (np.cumsum(parts) - parts)[which]
    begin = part * size[which]
    last = np.minimum(begin + size[which], end[which])
    items = np.stack(
        [
            (starts[rows] + first)[which], taken[which], position[which], begin, last,
            page_starts[rows][which], number[which], part | parts[which] << 16,
        ],
        axis=1,
    )  # fmt: skip
    return items[np.argsort(begin - last, kind="stable")].astype(np.int32)


def _part_sizes(keys: IntArray64, limits: PrefillLimits) -> tuple[IntArray64, IntArray64]:
    """Keys in a part of each tile, and its parts, so that the last piece to end is early."""
    blocks = -(-keys // limits.block)
    chosen = blocks
    share = int(blocks.sum()) / limits.target
    if blocks.max() > max(share / 2, _MIN_PART_BLOCKS):
        longest = [max(math.ceil(factor * share), _MIN_PART_BLOCKS) for factor in _SHARES]
        sizes = [blocks, *(_even_parts(blocks, most) for most in dict.fromkeys(longest))]
        fitting = [size for size in sizes if _num_split(blocks, size) <= max_split_parts(limits)]
        chosen = min(fitting, key=lambda size: _rounds(blocks, size, limits.target))
    return chosen * limits.block, -(-blocks // chosen)


def _even_parts(blocks: IntArray64, most: int) -> IntArray64:
    """Blocks in the parts of each tile, cut as evenly as `most` a part allows."""
    return -(-blocks // -(-blocks // most))


def _num_split(blocks: IntArray64, size: IntArray64) -> int:
    """Parts of tiles that have more than one."""
    parts = -(-blocks // size)
    return int(parts[parts > 1].sum())


def _rounds(blocks: IntArray64, size: IntArray64, target: int) -> int:
    """About how many blocks the device takes one after the other, longest pieces first."""
    parts = -(-blocks // size)
    pieces = -np.sort(-np.repeat(size, parts))
    return int(pieces[::target].sum()) + (_JOIN_BLOCKS if parts.max() > 1 else 0)
