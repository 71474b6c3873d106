"""One sequence's way back from the tiers, as its scheduler and the offload thread share it.

Holds state; who changes what is said with each attribute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegainfer_core.backend import Fence
    from pegainfer_core.kv import PageKey
    from pegainfer_core.offload.host_pool import HostSlot


class Restore:
    """Consecutive pages of one sequence to be brought back.

    Args:
        keys: Of the pages.
        parent: Key of the page before them, None for a first page.
        slots: Host slots of the pages, leased by whoever made this; None for those not there.

    Attributes:
        keys: Of the pages.
        parent: Key of the page before them.
        slots: Host slots by page, pinned; filled in by the offload thread.
        page_ids: The device's pages, in the same order, set by the scheduler, which holds them
            until `finished`. Empty before it knows how many are worth it.
        fence: After what the pages may be written.
        limit: Leading pages that can still be had; set and lowered by the offload thread.
        deadline_s: When the sequence stops waiting, on the monotonic clock.
        cancelled: The sequence is gone; set by the scheduler.
        finished: No copy into its pages is under way or will be; set by the offload thread last.
        num_landed: Leading pages whose content is on the device once it is finished.
        skipped: It was not worth while; nothing was copied.
        failed: Fewer pages landed than were promised.
        num_by_source: Landed pages by the tier they came from.
    """

    __slots__ = (
        "cancelled",
        "deadline_s",
        "failed",
        "fence",
        "finished",
        "keys",
        "limit",
        "num_by_source",
        "num_landed",
        "page_ids",
        "parent",
        "skipped",
        "slots",
    )

    def __init__(
        self, keys: list[PageKey], parent: PageKey | None, slots: list[HostSlot | None]
    ) -> None:
        self.keys = keys
        self.parent = parent
        self.slots = slots
        self.page_ids: list[int] = []
        self.fence: Fence | None = None
        self.limit = len(keys)
        self.deadline_s = 0.0
        self.cancelled = False
        self.finished = False
        self.num_landed = 0
        self.skipped = False
        self.failed = False
        self.num_by_source: dict[str, int] = {}
