"""Choosing tokens on the device. Knows rows' words and tables, not what they mean for requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from pegainfer_core.backend.cuda.arrays import address
from pegainfer_core.backend.cuda.sampling.mask_rows import MaskRows
from pegainfer_core.backend.cuda.sampling.results import ChoiceResults
from pegainfer_core.backend.cuda.sampling.scratch import ChoiceScratch
from pegainfer_core.backend.cuda.sampling.staged_writes import StagedWrites
from pegainfer_core.backend.cuda.sampling.table_pool import TablePool
from pegainfer_core.kernels import catalog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pegainfer_core.backend.batch import Batch
    from pegainfer_core.backend.cuda.cuda_batch import CudaBatch
    from pegainfer_core.backend.cuda.device import Device, DeviceMemory
    from pegainfer_core.backend.cuda.library import KernelLibrary
    from pegainfer_core.backend.cuda.sampling.results import FetchedChoice
    from pegainfer_core.backend.tensor import Tensor
    from pegainfer_core.kernels import KernelSpec
    from pegainfer_core.sampling.choice_device import DeviceTable


class CudaChoice:
    """Implements `pegainfer_core.sampling.ChoiceDevice`.

    About 120 KiB of scratch a row are allocated at once, tables of requests when they are needed.

    Args:
        device: Where the logits lie.
        library: Its kernels.
        vocab_size: Columns of the logits.
        max_rows: Most rows that choose in a step, padding included.
        num_slots: Rows of the table of newest ids.
        num_ids: Ids from here on are never chosen; None lets every id be chosen.

    Attributes:
        vocab_size: As given.
        num_ids: As given.
        num_slots: As given.
        num_words: int32 words that describe a row.
        max_top: Most reported tokens beside the chosen one.
        next_ids: Device address of [num_slots] int32: the newest id of each slot.
    """

    num_words = catalog.CHOICE_WORDS
    max_top = catalog.REPORT_TOP

    def __init__(
        self,
        device: Device,
        library: KernelLibrary,
        vocab_size: int,
        max_rows: int,
        num_slots: int,
        num_ids: int | None = None,
    ) -> None:
        self.vocab_size = vocab_size
        self.num_ids = vocab_size if num_ids is None else num_ids
        self.num_slots = num_slots
        self._ids = (vocab_size, self.num_ids)
        self._max_rows = max_rows
        self._device = device
        self._library = library
        self._newest = device.allocate(4 * num_slots)
        self.next_ids = self._newest.address
        device.fill(self.next_ids, 0, 4 * num_slots)
        self._part_width = catalog.part_width(vocab_size)
        self._num_parts = -(-vocab_size // self._part_width)
        self._scratch = ChoiceScratch(device, max_rows)
        self._results = ChoiceResults(device, max_rows)
        self._pool = TablePool(device)
        self._writes = StagedWrites(device)
        self._masks = MaskRows(device, max_rows, vocab_size)
        library.prepare(catalog.choice_specs(*self._ids))

    def take(self, num_bytes: int) -> DeviceMemory:
        """See `ChoiceDevice.take`."""
        return self._pool.take(num_bytes)

    def give(self, table: DeviceTable) -> None:
        """See `ChoiceDevice.give`."""
        self._pool.give(cast("DeviceMemory", table))

    def write(self, target: int, values: NDArray[np.int32]) -> None:
        """See `ChoiceDevice.write`."""
        self._writes.write(target, values)

    def count_tokens(self, history: int, token_ids: NDArray[np.int32], num_prompt: int) -> None:
        """See `ChoiceDevice.count_tokens`."""
        count = len(token_ids)
        self._device.fill(history, 0, 4 * self.vocab_size)
        ids = self._pool.take(4 * count)
        self._writes.write(ids.address, token_ids)
        grid = (-(-count // catalog.COUNT_BLOCK), 1)
        self._launch(catalog.count_tokens(), grid, history, ids.address, num_prompt, count)
        self._pool.give(ids)

    def mask_address(self, index: int) -> int:
        """See `ChoiceDevice.mask_address`."""
        return self._masks.address(index)

    def put_masks(self, masks: Sequence[NDArray[np.int32]]) -> None:
        """See `ChoiceDevice.put_masks`."""
        self._masks.put(masks)

    def choose(self, batch: Batch, logits: Tensor, *, draws: bool, full: bool) -> None:
        """See `ChoiceDevice.choose`."""
        words = cast("CudaBatch", batch).choice_words
        self.choose_rows(batch.num_sample_rows, address(logits), words, draws=draws, full=full)

    def choose_rows(
        self, num_rows: int, logits: int, words: int, *, draws: bool, full: bool
    ) -> None:
        """Choose for rows at addresses: [num_rows, vocab_size] float32 and [num_rows, 32] int32."""
        parts = (num_rows, self._num_parts)
        if full:
            self._launch(
                catalog.apply_rules(), parts, logits, words, self.next_ids, self.vocab_size,
                self._part_width,
            )  # fmt: skip
        at = self._scratch
        self._launch(
            catalog.choice_peaks(*self._ids), parts, logits, words, at.part_peaks, at.part_ids,
            at.part_lows, at.maxima, *self._ids, self._part_width,
        )  # fmt: skip
        if draws or full:
            self._draw(num_rows, logits, words)
        else:
            self._launch(
                catalog.choice_best(), (num_rows, 1), words, at.part_peaks, at.part_ids,
                self._results.chosen, self.next_ids, self._num_parts,
            )  # fmt: skip
        if full:
            results = self._results
            self._report(num_rows, logits, words, results.chosen, results.reports)

    def score(
        self, logits: Tensor, token_ids: NDArray[np.int32], words: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """See `ChoiceDevice.score`; as many rows at once as ever choose."""
        return self.score_rows(address(logits), token_ids, words)

    def score_rows(
        self, logits: int, token_ids: NDArray[np.int32], words: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """As `score`, with the address of the logits."""
        step = self._max_rows
        parts = []
        for first in range(0, len(token_ids), step):
            count = len(token_ids[first : first + step])
            given = np.concatenate(
                [words[first : first + step].reshape(-1), token_ids[first : first + step]]
            )
            num_reports = count * catalog.REPORT_WORDS
            memory = self._pool.take(given.nbytes + 4 * num_reports)
            self._writes.write(memory.address, given)
            chosen, reports = memory.address + 4 * count * self.num_words, memory.address
            reports += given.nbytes
            start = logits + 4 * first * self.vocab_size
            self._report(count, start, memory.address, chosen, reports)
            parts.append(self._results.read(reports, num_reports))
            self._pool.give(memory)
        return np.concatenate(parts).reshape(-1, catalog.REPORT_WORDS)

    def fetch(self, num_rows: int, *, reports: bool) -> FetchedChoice:
        """See `ChoiceDevice.fetch`."""
        return self._results.fetch(num_rows, reports=reports)

    def _draw(self, num_rows: int, logits: int, words: int) -> None:
        at, parts, ids = self._scratch, (num_rows, self._num_parts), self._ids
        sizes = (*ids, self._part_width, self._num_parts)
        self._launch(
            catalog.choice_bounds(*ids), (num_rows, 1), logits, words, at.part_peaks,
            at.part_ids, at.part_lows, at.maxima, at.row_peaks, at.row_ids, at.row_lows,
            at.row_bounds, at.row_counts, at.groups, at.list_ids, at.list_values, *sizes,
        )  # fmt: skip
        for fine, out in ((False, at.coarse), (True, at.fine)):
            self._launch(
                catalog.choice_sums(*ids, fine=fine), parts, logits, words, at.row_peaks,
                at.row_lows, at.part_totals, at.part_floors, at.coarse, out, *sizes,
            )  # fmt: skip
        self._launch(
            catalog.choice_collect(*ids), parts, logits, words, at.row_peaks, at.row_lows,
            at.row_bounds, at.row_counts, at.maxima, at.part_totals, at.part_heavies, at.coarse,
            at.fine, at.list_ids, at.list_values, *sizes,
        )  # fmt: skip
        self._launch(
            catalog.choice_draw(*ids), (num_rows, 1), logits, words, at.row_peaks, at.row_ids,
            at.row_lows, at.row_counts, at.part_totals, at.part_floors, at.part_heavies, at.coarse,
            at.fine, at.list_ids, at.list_values, self._results.chosen, self.next_ids, *sizes,
        )  # fmt: skip

    def _report(self, num_rows: int, logits: int, words: int, chosen: int, reports: int) -> None:
        at = self._scratch
        sizes = (self.vocab_size, self._part_width)
        self._launch(
            catalog.score_parts(), (num_rows, self._num_parts), logits, words, chosen,
            at.part_peaks, at.part_sums, at.part_ids, at.groups, *sizes,
        )  # fmt: skip
        self._launch(
            catalog.report_logprobs(), (num_rows, 1), logits, words, chosen, at.part_peaks,
            at.part_sums, at.part_ids, at.groups, reports, *sizes, self._num_parts,
        )  # fmt: skip

    def _launch(self, spec: KernelSpec, grid: tuple[int, int], *arguments: float) -> None:
        self._library.get(spec).launch(self._device.stream, grid, *arguments)
