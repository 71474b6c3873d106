"""Masks of a step's rows on the device: one copy for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pegainfer_core.backend.cuda.device import Event, PinnedMemory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pegainfer_core.backend.cuda.device import Device

_NUM_BUFFERS: Final = 3
"""Copies under way at once, and one more."""
_ALIGNED_WORDS: Final = 64


class MaskRows:
    """Memory for a mask a row, taken when the first is needed: vocab / 8 bytes a row.

    Args:
        device: Where the masks go.
        max_rows: Most masks in a step.
        vocab_size: Bits of a mask.
    """

    def __init__(self, device: Device, max_rows: int, vocab_size: int) -> None:
        self._device = device
        self._max_rows = max_rows
        words = -(-vocab_size // 32)
        self._stride = -(-words // _ALIGNED_WORDS) * _ALIGNED_WORDS
        self._base = 0
        self._turn = 0

    def address(self, index: int) -> int:
        """Device address of a row's mask."""
        if not self._base:
            self._memory = self._device.allocate(4 * self._stride * self._max_rows)
            self._buffers = [
                (PinnedMemory(4 * self._stride * self._max_rows), Event())
                for _ in range(_NUM_BUFFERS)
            ]
            self._base = self._memory.address
        return self._base + 4 * self._stride * index

    def put(self, masks: Sequence[NDArray[np.int32]]) -> None:
        """Copy masks to the first rows, in stream order; they may change after the call."""
        target = self.address(0)
        self._turn = (self._turn + 1) % _NUM_BUFFERS
        memory, event = self._buffers[self._turn]
        event.wait()
        rows = memory.array.view(np.int32).reshape(self._max_rows, self._stride)
        for row, mask in zip(rows, masks, strict=False):
            row[: len(mask)] = mask
        self._device.upload(target, memory.address, 4 * self._stride * len(masks))
        event.record(self._device)
