"""What the NumPy ops derive from a step's metadata once, not once a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pegainfer_core.backend.batch import Batch
from pegainfer_core.backend.numpy.arrays import floats

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.backend.metadata import StepMetadata
    from pegainfer_core.backend.numpy.arrays import FloatArray
    from pegainfer_core.backend.rope import RopeTable


class RowSpan(NamedTuple):
    """One row of the step.

    Attributes:
        first: Its first token in the step.
        end: One past its last.
        context: Tokens of its context, those of this step included.
        pages: Its page ids, int64.
    """

    first: int
    end: int
    context: int
    pages: NDArray[np.int64]


class NumpyBatch(Batch):
    """A step on NumPy.

    Attributes:
        token_ids: [T].
        slot_pages: [T] page that each token's KV goes to.
        slot_offsets: [T] place in that page.
        rows: The rows.
    """

    def __init__(self, metadata: StepMetadata) -> None:
        super().__init__(metadata)
        count = metadata.num_tokens
        # NumPy indexes with int64; converting once spares it in every layer.
        slots = metadata.slots[:count].astype(np.int64)
        self.token_ids = metadata.token_ids[:count].astype(np.int64)
        self.slot_pages, self.slot_offsets = np.divmod(slots, metadata.page_tokens)
        self.rows = _row_spans(metadata)
        self._positions = metadata.positions[:count].astype(np.int64)
        self._rope: RopeTable | None = None
        self._cos_sin: tuple[FloatArray, FloatArray] | None = None

    def cos_sin(self, table: RopeTable) -> tuple[FloatArray, FloatArray]:
        """Cos and sin of the step's positions, each [T, 1, rotary_dim / 2]."""
        if self._cos_sin is None or self._rope is not table:
            self._rope = table
            self._cos_sin = (
                floats(table.cos)[self._positions, None],
                floats(table.sin)[self._positions, None],
            )
        return self._cos_sin


def _row_spans(metadata: StepMetadata) -> list[RowSpan]:
    rows = metadata.num_rows
    starts = metadata.row_starts[: rows + 1].tolist()
    contexts = metadata.context_lens[:rows].tolist()
    page_starts = metadata.page_starts[: rows + 1].tolist()
    pages = metadata.pages[: page_starts[rows]].astype(np.int64)
    return [
        RowSpan(starts[i], starts[i + 1], contexts[i], pages[page_starts[i] : page_starts[i + 1]])
        for i in range(rows)
    ]
