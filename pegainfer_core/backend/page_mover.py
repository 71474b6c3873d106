"""Copies whole KV pages, or states, between a pool and host memory, beside the steps.

Decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class HostSlab(NamedTuple):
    """Host memory that pages are copied to and from.

    Attributes:
        address: Of the first byte, a multiple of 4096.
        memory: All of it, writable; lives as long as the mover that made it.
    """

    address: int
    memory: memoryview


class CopyTicket(Protocol):
    """Copies under way."""

    def done(self) -> bool:
        """Whether all of them have landed; once True, always True.

        Raises:
            RuntimeError: They cannot land any more.
        """
        ...


class Fence(Protocol):
    """A moment in the backend's own work."""


class PageMover(Protocol):
    """Made by a backend on its own thread; all but `fence` is then used by one other thread.

    Saves and loads are each done in order, and run beside each other and beside steps.
    """

    def open(self) -> None:
        """Make the device known to the calling thread; comes first."""
        ...

    def slab(self, num_bytes: int) -> HostSlab:
        """More host memory, such as the device reaches best; may be called from any thread.

        Raises:
            MemoryError: There is not enough of it.
        """
        ...

    def fence(self) -> Fence | None:
        """What the backend was given up to now; called on the backend's thread.

        A page may be freed and handed out again while a step that was launched before still
        writes it: a load into pages just handed out must come after that step.
        """
        ...

    def save(self, page_ids: Sequence[int], addresses: Sequence[int]) -> CopyTicket:
        """Copy pages to host addresses, parallel to them.

        Whatever wrote the pages must be complete already.
        """
        ...

    def load(
        self, addresses: Sequence[int], page_ids: Sequence[int], after: Fence | None
    ) -> CopyTicket:
        """Copy from host addresses to pages, parallel to them, once `after` was reached."""
        ...

    def close(self) -> None:
        """Wait for what is under way and release everything, slabs included."""
        ...


class StateMover(PageMover, Protocol):
    """The same for slots of recurrent states, whose numbers stand for the ids of pages.

    Attributes:
        slot_bytes: What a slot takes, in host memory too.
    """

    slot_bytes: int
