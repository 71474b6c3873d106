"""What the kernels of a choice leave for one another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pegainfer_core.kernels import catalog

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda.device import Device

_ALIGNMENT: Final = 256


class ChoiceScratch:
    """Device addresses of [rows, ...] arrays; 4-byte values unless said otherwise.

    Attributes:
        part_peaks: [parts] largest logit of each part of a row.
        part_ids: [parts] its id; later ranks.
        part_lows: [parts] lowest finite logit.
        part_sums: [parts] sum of exponentials.
        part_totals: [parts] int64 mass.
        part_floors: [parts] int64 mass that min_p keeps.
        part_heavies: [parts] int64 mass above the list.
        coarse: [parts, edges] mass above coarse edges.
        fine: [parts, fine edges] mass above fine edges.
        maxima: [parts, lanes] largest logit of each group.
        groups: [parts, lanes] int64 best token of each group.
        list_ids: [CHOICE_LIST] ids.
        list_values: [CHOICE_LIST] their logits.
        row_peaks: Largest logit.
        row_ids: Its id.
        row_lows: Lowest finite logit.
        row_bounds: What at least top_k logits reach.
        row_counts: Tokens that were to be listed.
    """

    def __init__(self, device: Device, max_rows: int) -> None:
        parts, lanes = catalog.CHOICE_PARTS, catalog.CHOICE_LANES
        coarse, fine = parts * catalog.CHOICE_EDGES, parts * catalog.CHOICE_FINE_EDGES
        sizes = np.array(
            [4 * parts] * 4
            + [8 * parts] * 3
            + [4 * coarse, 4 * fine]
            + [4 * parts * lanes, 8 * parts * lanes]
            + [4 * catalog.CHOICE_LIST] * 2
            + [4] * 5
        )
        sizes = -(-sizes * max_rows // _ALIGNMENT) * _ALIGNMENT
        self._memory = device.allocate(int(sizes.sum()))
        starts = self._memory.address + np.cumsum([0, *sizes[:-1]])
        (
            self.part_peaks,
            self.part_ids,
            self.part_lows,
            self.part_sums,
            self.part_totals,
            self.part_floors,
            self.part_heavies,
            self.coarse,
            self.fine,
            self.maxima,
            self.groups,
            self.list_ids,
            self.list_values,
            self.row_peaks,
            self.row_ids,
            self.row_lows,
            self.row_bounds,
            self.row_counts,
        ) = starts.tolist()
