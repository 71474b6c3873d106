"""How the tokens of a step are grouped by their adapters. Pure host arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pegainfer_core.kernels.catalog import LORA_TILE, LORA_TILE_INTS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.backend.metadata import StepMetadata

    IntArray = NDArray[np.int32]


class LoraTiles(NamedTuple):
    """Work for adapters.

    Attributes:
        tokens: Tokens of rows with adapters, adapter after adapter.
        tiles: [n, 4]: slot of an adapter, first entry of `tokens`, entries, nothing.
    """

    tokens: IntArray
    tiles: IntArray


class LoraWork(NamedTuple):
    """The same on a device.

    Attributes:
        max_tiles: At least as many as there are tiles.
        num_tiles: Device address of their number.
        tiles: Device address, as the following.
        tokens: At least one.
    """

    max_tiles: int
    num_tiles: int
    tiles: int
    tokens: int


def max_lora_tiles(num_tokens: int, num_slots: int) -> int:
    """Most tiles of a step: only the last one of each adapter is not full."""
    return num_tokens // LORA_TILE + min(num_slots, num_tokens)


def lora_tiles(metadata: StepMetadata) -> LoraTiles:
    """Group a finished step's tokens."""
    rows = metadata.num_rows
    lengths = np.diff(metadata.row_starts[: rows + 1])
    slots = np.repeat(metadata.row_adapters[:rows], lengths)
    adapted = np.flatnonzero(slots >= 0)
    tokens = adapted[np.argsort(slots[adapted], kind="stable")].astype(np.int32)
    used, firsts, counts = np.unique(slots[tokens], return_index=True, return_counts=True)
    tiles = [
        (slot, first + begin, min(LORA_TILE, count - begin), 0)
        for slot, first, count in zip(used.tolist(), firsts.tolist(), counts.tolist(), strict=True)
        for begin in range(0, count, LORA_TILE)
    ]
    return LoraTiles(tokens, np.array(tiles, np.int32).reshape(-1, LORA_TILE_INTS))
