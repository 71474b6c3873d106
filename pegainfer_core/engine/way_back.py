"""One sequence's way back from other memory, with the state behind its pages. Decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegainfer_core.engine.sequence import Sequence
    from pegainfer_core.offload import PageKeys, Restore


class WayBack:
    """Where one sequence is on its way.

    Attributes:
        sequence: Computes nothing meanwhile.
        keys: Names of its pages.
        first: Its blocks on the device that end in a snapshot there.
        known: Its blocks on the device.
        borders: Numbers of blocks, ascending, behind which there is a snapshot somewhere.
        border: The one to be taken over, once that is decided.
        pages: Their restore, if some are not on the device.
        state: The snapshot's restore, once it has begun.
        slots: Of the snapshot on the device, by group; taken.
        cancelled: The sequence is gone.
    """

    def __init__(self, sequence: Sequence, keys: PageKeys, first: int, known: int) -> None:
        self.sequence = sequence
        self.keys = keys
        self.first = first
        self.known = known
        self.borders: list[int] = []
        self.border = 0
        self.pages: Restore | None = None
        self.state: Restore | None = None
        self.slots: tuple[int, ...] = ()
        self.cancelled = False

    @property
    def num_shared(self) -> int:
        """Blocks to take over that the device holds, but no snapshot of their end."""
        return min(self.border, self.known) - self.first

    def last_border(self, end: int) -> int:
        """The last of the borders up to some number of blocks, 0 for none."""
        return max((border for border in self.borders if border <= end), default=0)

    @property
    def has_landed(self) -> bool:
        """Whether everything is where it should be."""
        if self.cancelled or self.state is None or not self.state.num_landed:
            return False
        num_pages = self.border - self.first - self.num_shared
        return not num_pages or (self.pages is not None and self.pages.num_landed == num_pages)
