"""Brings pages back: looks for them behind host memory, reads them, copies them to the device.

Runs on the offload thread. Whatever goes wrong only makes a restore shorter.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from pegainfer_core.offload.restore_run import RestoreRun
from pegainfer_core.offload.worth import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pegainfer_core.backend import PageMover
    from pegainfer_core.offload.copies import Copies
    from pegainfer_core.offload.host_pool import HostPool
    from pegainfer_core.offload.lower_tier import LowerTier
    from pegainfer_core.offload.restore import Restore
    from pegainfer_core.offload.worth import Worth

logger = logging.getLogger(__name__)

_SHORTEST_WAIT_S: Final = 1e-3


class Restorer:
    """Restores under way.

    Args:
        pool: Host memory.
        mover: Copies.
        copies: Those to the device, under way.
        page_bytes: Size of one page.
        tiers: Behind host memory, in the order in which they are preferred.
        worth: Decides.
        tell: Takes restores to the scheduler: once found, and once finished.
    """

    def __init__(
        self,
        pool: HostPool,
        mover: PageMover,
        copies: Copies,
        page_bytes: int,
        tiers: Sequence[LowerTier],
        worth: Worth,
        tell: Callable[[Restore], None],
    ) -> None:
        self._pool = pool
        self._mover = mover
        self._copies = copies
        self._page_bytes = page_bytes
        self._tiers = {tier.name: tier for tier in tiers}
        self._worth = worth
        self._tell = tell
        self._runs: dict[Restore, RestoreRun] = {}

    def __len__(self) -> int:
        """Restores under way."""
        return len(self._runs)

    def search(self, restore: Restore) -> None:
        """Ask the tiers for what host memory does not hold, then decide; tells what is found."""
        missing = [i for i, slot in enumerate(restore.slots) if slot is None]
        sources = [None if slot is None else HOST for slot in restore.slots]
        answers: dict[str, list[bool]] = {}

        def answer(name: str, found: list[bool]) -> None:
            answers[name] = found
            if len(answers) == len(self._tiers):
                for tier_name in self._tiers:
                    for index, held in zip(missing, answers[tier_name], strict=True):
                        if held and sources[index] is None:
                            sources[index] = tier_name
                self._decide(restore, sources)

        keys = [restore.keys[i] for i in missing]
        for name, tier in self._tiers.items():
            tier.contains(keys, lambda found, name=name: answer(name, found))  # type: ignore[misc]

    def begin(self, restore: Restore) -> None:
        """Copy pages that host memory holds, into those that the scheduler has given."""
        self._run(restore, [HOST] * restore.limit).advance()

    def go_on(self, restore: Restore) -> None:
        """The scheduler has given pages for what was found, or for the first of them."""
        run = self._runs.get(restore)
        if run is not None:  # else time was up a moment ago
            run.settle_for(len(restore.page_ids))
            run.advance()

    def cancel(self, restore: Restore) -> None:
        """Begin nothing more for a sequence that is gone."""
        run = self._runs.get(restore)
        if run is not None:
            run.stop()

    def poll(self) -> None:
        """End the patience of those who wait too long."""
        now_s = time.monotonic()
        for restore, run in list(self._runs.items()):
            if now_s >= restore.deadline_s:
                run.stop()

    def patience_s(self) -> float | None:
        """Time until the next deadline, None without one."""
        if not self._runs:
            return None
        next_s = min(restore.deadline_s for restore in self._runs)
        return max(next_s - time.monotonic(), _SHORTEST_WAIT_S)

    def stop(self) -> None:
        """Begin nothing more at all."""
        for run in list(self._runs.values()):
            run.stop()

    def _decide(self, restore: Restore, sources: list[str | None]) -> None:
        """Take all that can be had in a row, or only what host memory gives, or nothing."""
        found: list[str] = []
        for source in sources:
            if source is None:
                break
            found.append(source)
        num_host = next((i for i, source in enumerate(found) if source != HOST), len(found))
        for count in dict.fromkeys((len(found), num_host)):
            if count and not restore.cancelled and self._worth.pays(tally(found[:count])):
                restore.limit = count
                run = self._run(restore, found[:count])
                run.read_on()
                self._tell(restore)
                return
        restore.skipped = bool(found)
        restore.limit = 0
        self._pool.unpin([slot for slot in restore.slots if slot is not None])
        restore.finished = True
        self._tell(restore)

    def _run(self, restore: Restore, sources: list[str]) -> RestoreRun:
        def finish() -> None:
            del self._runs[restore]
            restore.finished = True
            self._tell(restore)

        restore.deadline_s = time.monotonic() + self._worth.patience_s(len(sources))
        run = RestoreRun(
            restore, sources, self._pool, self._mover, self._copies, self._page_bytes,
            self._tiers, finish,
        )  # fmt: skip
        self._runs[restore] = run
        return run


def tally(sources: Sequence[str]) -> dict[str, int]:
    """Pages by the tier they come from."""
    return {name: sources.count(name) for name in dict.fromkeys(sources)}
