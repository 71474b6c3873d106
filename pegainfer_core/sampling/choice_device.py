"""What a sampler needs of the device whose kernels choose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pegainfer_core.backend import Batch, Tensor

    IntArray = NDArray[np.int32]

__all__ = ["ChoiceDevice", "DeviceTable", "PendingChoice"]


class DeviceTable(Protocol):
    """Memory of a request on the device.

    Attributes:
        address: Of the first byte, a multiple of 256.
    """

    @property
    def address(self) -> int:
        """Of the first byte."""
        ...


class PendingChoice(Protocol):
    """Results on their way to the host."""

    def wait(self) -> tuple[IntArray, IntArray]:
        """Wait for them.

        Returns:
            [rows] int32 ids, and [rows, n] int32 reports (no rows where none were asked for):
            raw logit of the id, its rank, peak of the row, sum of exp(logit - peak), then pairs of
            id and raw logit; logits, peak and sum are float32. Where a logit is NaN, the peak is
            infinite.
        """
        ...


class ChoiceDevice(Protocol):
    """A device that chooses tokens from logits; all its work is done in the order of the calls.

    Attributes:
        vocab_size: Columns of the logits.
        num_ids: Ids from here on are never chosen.
        num_slots: Rows of its table of newest ids.
        num_words: int32 words that describe a row.
        max_top: Most reported tokens beside the chosen one.
        next_ids: Device address of [num_slots] int32.
    """

    vocab_size: int
    num_ids: int
    num_slots: int
    num_words: int
    max_top: int
    next_ids: int

    def take(self, num_bytes: int) -> DeviceTable:
        """Memory with any content."""
        ...

    def give(self, table: DeviceTable) -> None:
        """Let memory be taken again, by work that is submitted later.

        Until then it keeps its content: a choice that awaits masks may still use it.
        """
        ...

    def write(self, address: int, values: IntArray) -> None:
        """Copy to a table; the values may change after the call."""
        ...

    def count_tokens(self, history: int, token_ids: IntArray, num_prompt: int) -> None:
        """Make a history of [vocab_size] int32 that of these tokens and no others."""
        ...

    def mask_address(self, index: int) -> int:
        """Where `put_masks` puts the mask of that index: bits of the allowed ids."""
        ...

    def put_masks(self, masks: Sequence[IntArray]) -> None:
        """Copy the masks of a step, each [ceil(vocab_size / 32)] int32 or empty for any."""
        ...

    def choose(self, batch: Batch, logits: Tensor, *, draws: bool, full: bool) -> None:
        """Choose for the step's sampling rows; `full` includes rules and reports."""
        ...

    def score(self, logits: Tensor, token_ids: IntArray, words: IntArray) -> IntArray:
        """Report given tokens instead of choosing any; waits for the reports.

        Args:
            logits: [>= n, vocab_size] float32; left as they are.
            token_ids: [n] int32.
            words: [n, num_words] int32, of which the number of reported tokens counts.

        Returns:
            [n, ...] int32 reports, as `PendingChoice.wait` gives them.
        """
        ...

    def fetch(self, num_rows: int, *, reports: bool) -> PendingChoice:
        """Start to read what was chosen."""
        ...
