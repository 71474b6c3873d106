"""Page lists of running requests as arrays, kept by slot and extended, not converted every step.

Knows slots and page ids; nothing of requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray


class PageTables:
    """One row of page ids a slot.

    Args:
        max_rows: Slots.
        max_pages: Most pages of a row.
    """

    def __init__(self, max_rows: int, max_pages: int) -> None:
        self._table = np.zeros((max_rows, max_pages), np.int32)
        self._owners: list[Hashable] = [None] * max_rows
        self._counts = [0] * max_rows

    def row(self, slot: int, owner: Hashable, page_ids: Sequence[int]) -> NDArray[np.int32]:
        """A slot's pages.

        Args:
            slot: Which row.
            owner: Equal as long as `page_ids` only grows at its end.
            page_ids: All of them.

        Returns:
            [len(page_ids)] int32, a view that the slot's next owner overwrites.
        """
        table: NDArray[np.int32] = self._table[slot]
        count = len(page_ids)
        known = self._counts[slot] if self._owners[slot] == owner else 0
        if known < count:
            table[known:count] = page_ids[known:]
            self._owners[slot], self._counts[slot] = owner, count
        return table[:count]
