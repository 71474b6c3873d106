"""Tells whether copies read or write one sequence's pages. Used by the engine's thread alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegainfer_core.offload.page_keys import PageKeys


class PageHold:
    """What holds the pages of a sequence where they are, while it runs and after it has left.

    Args:
        keys: What the pages are called outside the device.

    Attributes:
        keys: The same.
        last_batch: The newest batch of saves that has pages of the sequence; batches land in order.
        is_restored: Whether a restore writes its pages.
    """

    __slots__ = ("is_restored", "keys", "last_batch")

    def __init__(self, keys: PageKeys) -> None:
        self.keys = keys
        self.last_batch = 0
        self.is_restored = False

    def is_free(self, num_landed: int) -> bool:
        """Whether no copy uses the pages.

        Args:
            num_landed: Batches of saves that have landed.
        """
        return self.last_batch <= num_landed and not self.is_restored
