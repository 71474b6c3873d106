"""What the NumPy ops derive from a step's metadata once, not once a layer."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pegainfer_core.backend.batch import Batch
from pegainfer_core.backend.numpy.arrays import floats

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.backend.metadata import StepMetadata
    from pegainfer_core.backend.numpy.arrays import FloatArray
    from pegainfer_core.backend.numpy.dense_contexts import DenseContext, DenseContexts
    from pegainfer_core.backend.rope import RopeTable


class RowSpan(NamedTuple):
    """One row of the step.

    Attributes:
        first: Its first token in the step.
        end: One past its last.
        context: Tokens of its context, those of this step included.
        pages: Its page ids.
        slot: Its slot in per-request tables, -1 for none.
    """

    first: int
    end: int
    context: int
    pages: list[int]
    slot: int


class SingleRows(NamedTuple):
    """All rows of one token, side by side, for ops that carry a state from step to step.

    Attributes:
        tokens: [n] each row's token in the step.
        slots: [n] their slots in per-request tables.
        is_first: [n] whether the token is a sequence's first.
        saves: [m] indices of rows whose states are copied.
        save_slots: [m] where each of the copies goes.
    """

    tokens: NDArray[np.int64]
    slots: NDArray[np.int64]
    is_first: NDArray[np.bool_]
    saves: NDArray[np.int64]
    save_slots: NDArray[np.int64]


class AdaptedTokens(NamedTuple):
    """Tokens of the rows with one adapter.

    Attributes:
        slot: The adapter's.
        tokens: Their places in the step, ascending.
    """

    slot: int
    tokens: NDArray[np.int64]


class NumpyBatch(Batch):
    """A step on NumPy.

    Attributes:
        token_ids: [T].
        slot_pages: [T] page that each token's KV goes to.
        slot_offsets: [T] place in that page.
        rows: The rows.
        saves: First token behind each state to copy, and the slot of the copy, in their order.
    """

    def __init__(self, metadata: StepMetadata) -> None:
        super().__init__(metadata)
        count = metadata.num_tokens
        # NumPy indexes with int64; converting once spares it in every layer.
        slots = metadata.slots[:count].astype(np.int64)
        self.token_ids = metadata.token_ids[:count].astype(np.int64)
        self.slot_pages, self.slot_offsets = np.divmod(slots, metadata.page_tokens)
        self.rows = _row_spans(metadata)
        num_saves = metadata.num_saves
        ends, targets = metadata.save_ends[:num_saves], metadata.save_slots[:num_saves]
        self.saves = list(zip(ends.tolist(), targets.tolist(), strict=True))
        self._positions = metadata.positions[:count].astype(np.int64)
        self._rope: RopeTable | None = None
        self._turns: tuple[FloatArray, FloatArray] | None = None
        self._dense: list[DenseContext | None] | None = None

    @cached_property
    def single_rows(self) -> SingleRows:
        """The rows of one token."""
        rows = [row for row in self.rows if row.end - row.first == 1]
        by_end = {row.end: index for index, row in enumerate(rows)}
        saves = [(by_end[end], slot) for end, slot in self.saves if end in by_end]
        return SingleRows(
            np.array([row.first for row in rows], np.int64),
            np.array([row.slot for row in rows], np.int64),
            np.array([row.context == 1 for row in rows], np.bool_),
            np.array([index for index, _ in saves], np.int64),
            np.array([slot for _, slot in saves], np.int64),
        )

    @cached_property
    def longer_rows(self) -> list[RowSpan]:
        """The other rows."""
        return [row for row in self.rows if row.end - row.first > 1]

    @cached_property
    def adapted_tokens(self) -> list[AdaptedTokens]:
        """All tokens of rows with adapters, by adapter."""
        metadata = self.metadata
        rows = metadata.num_rows
        lengths = np.diff(metadata.row_starts[: rows + 1])
        slots = np.repeat(metadata.row_adapters[:rows], lengths)
        used = np.unique(slots[slots >= 0]).tolist()
        return [AdaptedTokens(slot, np.flatnonzero(slots == slot)) for slot in used]

    def turns(self, table: RopeTable) -> tuple[FloatArray, FloatArray]:
        """Factors for a head's two halves: cos [T, 1, 1, half], and -sin and sin [T, 1, 2, half].

        With x as [T, heads, 2, half], x * cos + (x with halves swapped) * these is the turned head.
        """
        if self._turns is None or self._rope is not table:
            sin = floats(table.sin)[self._positions, None, None]
            cos = floats(table.cos)[self._positions, None, None]
            self._rope, self._turns = table, (cos, np.concatenate([-sin, sin], axis=2))
        return self._turns

    def dense_contexts(self, contexts: DenseContexts) -> list[DenseContext | None]:
        """Dense copies of the rows' contexts; first asked for before the step writes any page."""
        if self._dense is None:
            self._dense = contexts.begin_step(self.rows, self.slot_pages)
        return self._dense


def _row_spans(metadata: StepMetadata) -> list[RowSpan]:
    rows = metadata.num_rows
    starts = metadata.row_starts[: rows + 1].tolist()
    contexts = metadata.context_lens[:rows].tolist()
    page_starts = metadata.page_starts[: rows + 1].tolist()
    pages = metadata.pages[: page_starts[rows]].tolist()
    slots = metadata.row_slots[:rows].tolist()
    return [
        RowSpan(
            first=starts[i],
            end=starts[i + 1],
            context=contexts[i],
            pages=pages[page_starts[i] : page_starts[i + 1]],
            slot=slots[i],
        )
        for i in range(rows)
    ]
