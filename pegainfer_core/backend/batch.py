"""One step as a backend sees it: the metadata after its upload."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegainfer_core.backend.metadata import StepMetadata


class Batch:
    """Handed to every op of a step. Backends subclass it to keep what they derive once a step.

    Attributes:
        metadata: Host copy; valid until the step's results are read.
        num_tokens: Tokens in this step; ops work on that many rows of their buffers. More than
            the metadata's where a backend fills a step up to a size it has recorded.
        num_sample_rows: Rows of logits that choose a token, filled up likewise.
        adapted: Whether any row has an adapter; if not, model code leaves out what adapters add.
    """

    def __init__(self, metadata: StepMetadata) -> None:
        self.metadata = metadata
        self.num_tokens = metadata.num_tokens
        self.num_sample_rows = metadata.num_samples
        self.adapted = metadata.num_adapted > 0
