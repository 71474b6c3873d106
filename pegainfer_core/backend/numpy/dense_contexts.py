"""Float32 copies of the contexts of running rows, kept from step to step.

The pages hold the truth. Widening a whole context in every layer of every step costs more than
attending to it does; a copy that follows its row needs only the step's new tokens. Their memory is
bounded, and a row without a copy is served from its pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pegainfer_core.backend.numpy.arrays import widen

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.backend.kv_layout import KvLayout
    from pegainfer_core.backend.numpy.arrays import FloatArray
    from pegainfer_core.backend.numpy.numpy_batch import RowSpan

DENSE_BYTES: Final = 512 << 20
"""Most memory of all copies together."""

_SPARE_TOKENS: Final = 256


@dataclass(slots=True)
class DenseContext:
    """The copy of one row's context.

    Attributes:
        values: [layers, 2 (K then V), kv_heads, capacity, head_dim].
        pages: Ids of the pages it was read from.
        length: Leading tokens it holds in every layer.
        step: Step in which it was last used.
    """

    values: FloatArray
    pages: list[int]
    length: int
    step: int

    def append(self, row: RowSpan, values: FloatArray, layer: int) -> None:
        """Take over this step's tokens of one layer, if the copy holds all before them.

        Args:
            row: The row.
            values: [n, 2, kv_heads, head_dim] as the pages are about to hold them.
            layer: Index in the pages.
        """
        start = row.context - len(values)
        if self.length == start:
            self.values[layer, :, :, start : row.context] = values.transpose(1, 2, 0, 3)


class DenseContexts:
    """The copies of one KV pool, by the row's slot in per-request tables.

    Args:
        layout: Of the pool.
        stored: Its pages.
        max_bytes: Most memory of all copies together.

    Attributes:
        num_bytes: Memory of all copies now.
    """

    def __init__(
        self,
        layout: KvLayout,
        stored: NDArray[np.uint16] | FloatArray,
        max_bytes: int = DENSE_BYTES,
    ) -> None:
        self._layout = layout
        self._stored = stored
        self._max_bytes = max_bytes
        self.num_bytes = 0
        self._step = 0
        self._written = np.zeros(len(stored), np.int64)
        self._contexts: dict[int, DenseContext] = {}

    def mark_written(self, pages: NDArray[np.int64] | list[int]) -> None:
        """Learn that pages get new content outside of a step."""
        self._step += 1
        self._written[pages] = self._step

    def mark_loaded(self, pages: list[int]) -> None:
        """Learn, on another thread than the steps', that pages of no running row get new content.

        Their next step comes after this, so its number says enough, and the count is left to the
        thread of the steps.
        """
        self._written[pages] = self._step + 1

    def begin_step(
        self, rows: list[RowSpan], slot_pages: NDArray[np.int64]
    ) -> list[DenseContext | None]:
        """Find or make the copies of a step's rows, before the step writes any page.

        Args:
            rows: The step's rows.
            slot_pages: The pages it is about to write.

        Returns:
            One entry a row; None where the pages must serve.
        """
        self._step += 1
        found = [self._find(row) for row in rows]
        self._written[slot_pages] = self._step
        return found

    def extend(
        self, context: DenseContext, row: RowSpan, layer: int
    ) -> tuple[FloatArray, FloatArray]:
        """Bring one layer of a copy up to date from the pages, unless `append` did it.

        Layers come in order: the last one completes the step for this copy.

        Returns:
            Keys and values, each [kv_heads, context, head_dim].
        """
        copy = context.values[layer]
        if context.length < row.context - (row.end - row.first):
            self._read_pages(context.length, row, layer, copy)
        if layer == self._layout.num_layers - 1:
            context.length = row.context
        return copy[0, :, : row.context], copy[1, :, : row.context]

    def _read_pages(self, position: int, row: RowSpan, layer: int, copy: FloatArray) -> None:
        size = self._layout.page_tokens
        while position < row.context:
            offset = position % size
            end = min(position - offset + size, row.context)
            tokens = self._stored[row.pages[position // size], layer]
            tokens = tokens[:, offset : offset + end - position]
            widen(tokens.swapaxes(1, 2), copy[:, :, position:end])
            position = end

    def _find(self, row: RowSpan) -> DenseContext | None:
        if row.slot < 0:
            return None
        context = self._contexts.pop(row.slot, None)
        if context is not None:
            # This step's own tokens are always read anew: pages that came back to their slot with
            # nothing written since, after a shorter prefix, still hold the old ones in the copy.
            length = min(context.length, row.context - (row.end - row.first))
            context.length = length if self._holds(context, row) else 0
        if context is None or row.context > context.values.shape[3]:
            context = self._enlarged(context, row.context)
        if context is not None:
            context.pages, context.step = row.pages, self._step
            self._contexts[row.slot] = context
        return context

    def _holds(self, context: DenseContext, row: RowSpan) -> bool:
        """Whether what the copy holds is what the row's pages hold."""
        pages = context.pages
        is_prefix = pages == row.pages[: len(pages)]
        return is_prefix and int(self._written[pages].max()) <= context.step

    def _enlarged(self, context: DenseContext | None, num_tokens: int) -> DenseContext | None:
        """A copy with room for so many tokens, the content kept; None when memory is short."""
        layout = self._layout
        capacity = num_tokens + _SPARE_TOKENS - num_tokens % _SPARE_TOKENS
        shape = (layout.num_layers, 2, layout.num_kv_heads, capacity, layout.head_dim)
        num_bytes = int(np.prod(shape)) * 4
        if context is not None:
            self.num_bytes -= context.values.nbytes
        if not self._make_room(num_bytes):
            return None
        self.num_bytes += num_bytes
        larger = DenseContext(np.empty(shape, np.float32), [], 0, 0)
        if context is not None and context.length:
            kept = context.values[:, :, :, : context.length]
            larger.values[:, :, :, : context.length] = kept
            larger.length = context.length
        return larger

    def _make_room(self, num_bytes: int) -> bool:
        """Drop copies that this step does not use, those unused longest first."""
        while self.num_bytes + num_bytes > self._max_bytes:
            slot = next(iter(self._contexts), None)
            if slot is None or self._contexts[slot].step == self._step:
                return False
            self.num_bytes -= self._contexts.pop(slot).values.nbytes
        return True
