"""A step's metadata and attention work, uploaded by one copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pegainfer_core.backend.cuda.cuda_batch import CudaBatch
from pegainfer_core.backend.cuda.device import Event, PinnedMemory, host_address
from pegainfer_core.backend.cuda.lora_items import LoraWork, lora_tiles, max_lora_tiles
from pegainfer_core.backend.cuda.recurrent_items import (
    RecurrentItems,
    RecurrentWork,
    max_pieces,
    recorded_pieces,
    recurrent_items,
)
from pegainfer_core.backend.cuda.step_shape import MAX_PROMPT_ROWS
from pegainfer_core.backend.cuda.work_items import decode_items, max_prefill_items, prefill_items
from pegainfer_core.kernels.catalog import (
    CHOICE_WORDS,
    DECODE_ITEM_INTS,
    LORA_TILE_INTS,
    PIECE_INTS,
    PREFILL_ITEM_INTS,
    ROW_SAVES,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pegainfer_core.backend.batch import Batch
    from pegainfer_core.backend.cuda.device import Device, Recording
    from pegainfer_core.backend.cuda.step_shape import StepShape
    from pegainfer_core.backend.cuda.work_items import AttentionLimits
    from pegainfer_core.backend.metadata import StepMetadata

    IntArray = NDArray[np.int32]

_NUM_BUFFERS: Final = 3
"""Pinned buffers in rotation: the host packs a step while the copies of others are under way."""

_SECTIONS: Final = (
    "token_ids",
    "positions",
    "slots",
    "logit_tokens",
    "row_starts",
    "context_lens",
    "row_slots",
    "page_starts",
    "choice_words",
    "pages",
)


class MetadataUpload:
    """Device copy of one `StepMetadata`, at addresses that never change.

    Args:
        device: Where it goes.
        metadata: Its sizes count.
        limits: How attention work is cut.
        next_ids: Device address of the token chosen last for each slot.
        recurrent: Whether steps have work for recurrent layers.
        num_lora_slots: Adapters there can be.

    Attributes:
        limits: How attention work is cut.
        addresses: Device address of each section.
        next_ids: Device address of the token chosen last for each slot.
        recordings: What was recorded with these addresses, by shape and work.
    """

    def __init__(
        self,
        device: Device,
        metadata: StepMetadata,
        limits: AttentionLimits,
        next_ids: int,
        *,
        recurrent: bool = False,
        num_lora_slots: int = 0,
    ) -> None:
        self.limits = limits
        self.next_ids = next_ids
        self.recordings: dict[tuple[StepShape, Callable[[Batch], None]], Recording | None] = {}
        self._device = device
        self._recurrent = recurrent
        self._num_lora_slots = num_lora_slots
        max_rows, max_tokens = len(metadata.context_lens), len(metadata.token_ids)
        sizes = {
            # Four counts first, so that the items behind them are aligned to sixteen bytes.
            "num_items": 1,
            "num_prefill_items": 1,
            "num_pieces": 1,
            "num_lora_tiles": 1,
            "items": DECODE_ITEM_INTS * (max_rows + limits.target_items),
            "tiles": PREFILL_ITEM_INTS * max_prefill_items(max_rows, max_tokens, limits.prefill),
            "row_items": max_rows + 1,
            **(_recurrent_sizes(metadata) if recurrent else {}),
            **(_lora_sizes(max_tokens, num_lora_slots) if num_lora_slots else {}),
        }
        self._front = sum(sizes.values())
        size = self._front + metadata.packed.size
        self._buffers = [PinnedMemory(4 * size) for _ in range(_NUM_BUFFERS)]
        self._events = [Event() for _ in range(_NUM_BUFFERS)]
        self._turn = 0
        self._memory = device.allocate(4 * size)
        self._offsets = dict(zip(sizes, np.cumsum([0, *sizes.values()])[:-1].tolist(), strict=True))
        for name in _SECTIONS:
            section: IntArray = getattr(metadata, name)
            offset = (host_address(section) - host_address(metadata.packed)) // 4
            self._offsets[name] = self._front + offset
        base = self._memory.address
        self.addresses = {name: base + 4 * offset for name, offset in self._offsets.items()}

    def submit(self, metadata: StepMetadata, shape: StepShape | None) -> CudaBatch:
        """Copy the finished metadata to the device.

        Args:
            metadata: The one this was made for.
            shape: What the step is filled up to; None leaves it as it is.
        """
        self._turn = (self._turn + 1) % _NUM_BUFFERS
        event, pinned = self._events[self._turn], self._buffers[self._turn]
        items = recurrent_items(metadata) if self._recurrent else None
        if items and shape and len(items.pieces) > recorded_pieces(shape.num_tokens):
            shape = None
        event.wait()
        host = pinned.array.view(np.int32)
        used = self._front + metadata.num_packed
        host[self._front : used] = metadata.packed[: metadata.num_packed]
        num_decode = metadata.num_decode
        if shape is not None:
            self._pad(host, metadata, shape)
        self._put_items(host, metadata, shape.num_decode if shape else num_decode)
        work = self._put_recurrent(host, items, shape) if items else None
        lora = self._put_lora(host, metadata, shape) if metadata.num_adapted else None
        num_tiles = self._put_tiles(host, metadata)
        if shape is not None and num_tiles:
            # Programs beyond the pieces that there are end at once.
            limits = self.limits.prefill
            num_tiles = max_prefill_items(MAX_PROMPT_ROWS, shape.num_tokens, limits)
        self._device.upload(self._memory.address, pinned.address, 4 * used)
        event.record(self._device)
        batch = CudaBatch(metadata, self, num_tiles, shape)
        batch.recurrent = work
        batch.lora = lora
        return batch

    def _pad(self, host: IntArray, metadata: StepMetadata, shape: StepShape) -> None:
        """Fill up with tokens that write to the padding page, and choices that are nobody's."""
        for name in ("token_ids", "positions", "slots"):
            offset = self._offsets[name]
            host[offset + metadata.num_tokens : offset + shape.num_tokens] = 0
        offset, first = self._offsets["logit_tokens"], metadata.num_samples
        # Any token does; in a step of decoding rows each row has its own.
        last = np.arange(first, shape.num_samples) if shape.num_decode else 0
        host[offset + first : offset + shape.num_samples] = last
        offset = self._offsets["choice_words"]
        host[offset + first * CHOICE_WORDS : offset + shape.num_samples * CHOICE_WORDS] = 0

    def _put_recurrent(
        self, host: IntArray, items: RecurrentItems, shape: StepShape | None
    ) -> RecurrentWork:
        """Pieces and slots, filled up with rows that have no slot and rows without pieces."""
        num_pieces, num_decode = len(items.pieces), len(items.row_saves)
        grid, rows, decoding = num_pieces, len(items.row_pieces) - 1, num_decode
        if shape is not None:
            decoding = shape.num_decode
            grid = 0 if decoding else recorded_pieces(shape.num_tokens)
            rows = 0 if decoding else MAX_PROMPT_ROWS
        at = self._offsets
        host[at["num_pieces"]] = num_pieces
        host[at["row_slots"] + num_decode : at["row_slots"] + decoding] = -1
        saves = host[at["row_saves"] :][: ROW_SAVES * decoding]
        saves[: items.row_saves.size] = items.row_saves.reshape(-1)
        saves[items.row_saves.size :] = -1
        host[at["pieces"] :][: items.pieces.size] = items.pieces.reshape(-1)
        row_pieces = host[at["row_pieces"] :][: rows + 1]
        row_pieces[: len(items.row_pieces)] = items.row_pieces
        row_pieces[len(items.row_pieces) :] = num_pieces
        return RecurrentWork(
            num_pieces=grid,
            num_rows=rows,
            piece_count=self.addresses["num_pieces"],
            pieces=self.addresses["pieces"],
            row_pieces=self.addresses["row_pieces"],
            row_slots=self.addresses["row_slots"],
            row_saves=self.addresses["row_saves"],
        )

    def _put_lora(
        self, host: IntArray, metadata: StepMetadata, shape: StepShape | None
    ) -> LoraWork | None:
        """Tokens of rows with adapters; what a step is filled up with is in no tile."""
        if not self._num_lora_slots:
            return None
        tokens, tiles = lora_tiles(metadata)
        host[self._offsets["num_lora_tiles"]] = len(tiles)
        host[self._offsets["lora_tokens"] :][: len(tokens)] = tokens
        host[self._offsets["lora_tiles"] :][: tiles.size] = tiles.reshape(-1)
        most = max_lora_tiles(shape.num_tokens, self._num_lora_slots) if shape else len(tiles)
        at = self.addresses
        return LoraWork(
            max_tiles=most,
            num_tiles=at["num_lora_tiles"],
            tiles=at["lora_tiles"],
            tokens=at["lora_tokens"],
        )

    def _put_items(self, host: IntArray, metadata: StepMetadata, num_rows: int) -> None:
        num_decode = metadata.num_decode
        offset = self._offsets["row_items"]
        row_items = host[offset : offset + num_rows + 1]
        if not num_decode:
            host[self._offsets["num_items"]] = 0
            row_items[:] = 0
            return
        limits = self.limits
        contexts = metadata.context_lens[:num_decode]
        tables = metadata.page_starts[:num_decode]
        made = decode_items(contexts, tables, limits.target_items, limits.item_block)
        host[self._offsets["num_items"]] = len(made.items)
        row_items[: num_decode + 1] = made.row_items
        row_items[num_decode + 1 :] = made.row_items[-1]
        offset = self._offsets["items"]
        host[offset : offset + made.items.size] = made.items.reshape(-1)

    def _put_tiles(self, host: IntArray, metadata: StepMetadata) -> int:
        num_decode, num_rows = metadata.num_decode, metadata.num_rows
        host[self._offsets["num_prefill_items"]] = 0
        if num_decode == num_rows:
            return 0
        tiles = prefill_items(
            metadata.row_starts[num_decode : num_rows + 1],
            metadata.context_lens[num_decode:num_rows],
            metadata.page_starts[num_decode:num_rows],
            self.limits.prefill,
        )
        host[self._offsets["num_prefill_items"]] = len(tiles)
        offset = self._offsets["tiles"]
        host[offset : offset + tiles.size] = tiles.reshape(-1)
        return len(tiles)


def _recurrent_sizes(metadata: StepMetadata) -> dict[str, int]:
    max_rows, max_tokens = len(metadata.context_lens), len(metadata.token_ids)
    pieces = max_pieces(max_tokens, max_rows, len(metadata.save_ends))
    return {
        "pieces": PIECE_INTS * pieces,
        "row_pieces": max(max_rows, MAX_PROMPT_ROWS) + 1,
        "row_saves": ROW_SAVES * max_rows,
    }


def _lora_sizes(max_tokens: int, num_slots: int) -> dict[str, int]:
    tiles = max_lora_tiles(max_tokens, num_slots)
    return {"lora_tiles": LORA_TILE_INTS * tiles, "lora_tokens": max_tokens}
