"""A step on the device, as the ops see it: where everything lies, and how large grids are."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pegainfer_core.backend.batch import Batch

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda.lora_items import LoraWork
    from pegainfer_core.backend.cuda.metadata_upload import MetadataUpload
    from pegainfer_core.backend.cuda.recurrent_items import RecurrentWork
    from pegainfer_core.backend.cuda.step_shape import StepShape
    from pegainfer_core.backend.metadata import StepMetadata
    from pegainfer_core.backend.rope import RopeTable
    from pegainfer_core.backend.tensor import Tensor


class DeferredHeads(NamedTuple):
    """What the attention of a layer still has to do to the heads before it."""

    layer: int
    norm: Tensor
    rope: RopeTable


class CudaBatch(Batch):
    """A step on the device; attributes are device addresses of int32 values unless said otherwise.

    Attributes:
        num_rows: Decoding rows, padding included.
        max_items: Grid of the decode attention: at least as many as there are items.
        num_tiles: Pieces of prefill attention, which are at `tiles`; their number is at
            `num_prefill_items` too.
        shape: Of the recorded steps that this one is filled up to, None if it is run as it is.
        next_ids: Where the token that was chosen last for each slot lies, 0 where nobody knows.
        recurrent: Work of recurrent layers, None if the backend was not told of any.
        lora: Work for adapters, None if no row has one.
        deferred: Set between the two ops of a layer's attention, if heads were left as they are.
    """

    def __init__(
        self,
        metadata: StepMetadata,
        upload: MetadataUpload,
        num_tiles: int,
        shape: StepShape | None,
    ) -> None:
        super().__init__(metadata)
        self.num_rows = metadata.num_decode
        if shape is not None:
            self.num_tokens, self.num_rows, self.num_sample_rows = shape[:3]
        self.upload = upload
        self.shape = shape
        self.next_ids = upload.next_ids
        self.recurrent: RecurrentWork | None = None
        self.lora: LoraWork | None = None
        self.deferred: DeferredHeads | None = None
        self.max_items = self.num_rows + upload.limits.target_items if self.num_rows else 0
        self.num_tiles = num_tiles
        at = upload.addresses
        self.token_ids = at["token_ids"]
        self.positions = at["positions"]
        self.slots = at["slots"]
        self.logit_tokens = at["logit_tokens"]
        self.row_starts = at["row_starts"]
        self.context_lens = at["context_lens"]
        self.page_starts = at["page_starts"]
        self.choice_words = at["choice_words"]
        self.pages = at["pages"]
        self.num_items = at["num_items"]
        self.num_prefill_items = at["num_prefill_items"]
        self.row_items = at["row_items"]
        self.items = at["items"]
        self.tiles = at["tiles"]
