"""The thread on which pages are copied and tiers are asked. Knows no sequences.

The engine's thread posts to it and reads its news; neither ever waits for the other's work.
"""

from __future__ import annotations

import logging
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from pegainfer_core.offload.copies import Copies
from pegainfer_core.offload.lower_tier import LowerTier
from pegainfer_core.offload.restorer import Restorer
from pegainfer_core.offload.saver import Saver
from pegainfer_core.offload.sealer import Sealer
from pegainfer_core.offload.worth import Worth

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pegainfer_core.backend import PageMover
    from pegainfer_core.kv import PageKey
    from pegainfer_core.offload.guard import GuardedTier
    from pegainfer_core.offload.host_pool import HostPool
    from pegainfer_core.offload.record import RecordLayout
    from pegainfer_core.offload.restore import Restore
    from pegainfer_core.offload.saver import PageSaves

logger = logging.getLogger(__name__)

_CLOSE_S: Final = 10.0
"""What was saved last gets so long to reach host memory and the tiers behind it."""

_CLOSING_TURN_S: Final = 0.05


class OffloadThread:
    """Begins with `start`, ends with `close`.

    Attributes:
        news: For the engine's thread: how many batches of saves have landed; a restore that was
            found or is finished; or None, when the thread has ended and brings nothing more.
        saves: Copies from the device.
        loads: Copies to the device.
        worth: The rates that decide.
        tiers: Behind host memory.
        saver: Its counters may be read from any thread.

    Args:
        pool: Host memory.
        mover: The backend's.
        layout: Of records.
        page_tokens: Tokens in one page.
        guards: Tiers behind host memory, in order.
        closes_tiers: Whether those are closed with the thread; another may still use them.
        name: Of the thread.
    """

    def __init__(
        self,
        pool: HostPool,
        mover: PageMover,
        layout: RecordLayout,
        page_tokens: int,
        guards: Sequence[GuardedTier] = (),
        *,
        closes_tiers: bool = True,
        name: str = "pegainfer-offload",
    ) -> None:
        self.news: SimpleQueue[int | Restore | None] = SimpleQueue()
        self.saves, self.loads = Copies(), Copies()
        names = [guard.name for guard in guards]
        self.worth = Worth(layout, page_tokens, self.loads.meter, names)
        meters = self.worth.tiers
        self._sealer = Sealer(layout) if guards else None
        self.tiers = (
            [LowerTier(g, pool, meters[g.name], self._sealer, self.post) for g in guards]
            if self._sealer is not None
            else []
        )
        self.saver = Saver(pool, mover, self.saves, layout, self.tiers, self.news.put)
        self._restorer = Restorer(
            pool, mover, self.loads, layout.page_bytes, self.tiers, self.worth, self.news.put
        )
        self._mover = mover
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._closing = False
        self._closes_tiers = closes_tiers
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def post(self, job: Callable[[], None]) -> None:
        """Run something on the thread, from any other; lost once it has ended."""
        self._jobs.put(job)

    def save(self, number: int, saves: list[PageSaves]) -> None:
        """Copy a batch of pages; batches are numbered from 1 on and land in order."""
        self.post(lambda: self.saver.save(number, saves))

    def ask(self, keys: Sequence[PageKey], answer: Callable[[list[bool]], None]) -> None:
        """Ask the tiers behind host memory which keys any of them holds.

        The answer comes on the thread; never, if that has failed.
        """
        self.post(lambda: self._ask(keys, answer))

    def search(self, restore: Restore) -> None:
        """Look for a restore's pages in the tiers behind host memory."""
        self.post(lambda: self._restorer.search(restore))

    def begin(self, restore: Restore) -> None:
        """Copy the pages of a restore that host memory holds."""
        self.post(lambda: self._restorer.begin(restore))

    def go_on(self, restore: Restore) -> None:
        """Copy the pages of a restore that was found."""
        self.post(lambda: self._restorer.go_on(restore))

    def cancel(self, restore: Restore) -> None:
        """Begin nothing more for a restore."""
        self.post(lambda: self._restorer.cancel(restore))

    def close(self) -> None:
        """Let copies from the device land and reach the tiers, then end everything."""
        if self._thread.is_alive():
            self.post(self._close)
            self._thread.join()

    def _close(self) -> None:
        self._closing = True
        self._restorer.stop()

    def _ask(self, keys: Sequence[PageKey], answer: Callable[[list[bool]], None]) -> None:
        held = [False] * len(keys)
        num_left = len(self.tiers)

        def take(found: list[bool]) -> None:
            nonlocal num_left
            for index, is_found in enumerate(found):
                held[index] = held[index] or is_found
            num_left -= 1
            if num_left == 0:
                answer(held)

        for tier in self.tiers:
            tier.contains(keys, take)

    def _run(self) -> None:
        try:
            self._mover.open()
            deadline_s = None
            while not self._closing or self._busy():
                self._turn()
                if self._closing:
                    deadline_s = deadline_s or time.monotonic() + _CLOSE_S
                    if time.monotonic() > deadline_s:
                        break
        except Exception:
            logger.exception("KV offload has failed; requests are served without it")
        finally:
            self._end()

    def _end(self) -> None:
        try:
            if self._sealer is not None:
                self._sealer.close()
            for tier in self.tiers if self._closes_tiers else ():
                tier.guard.close()
            self._mover.close()
        except RuntimeError:  # the device is lost, and with it all copies
            logger.exception("KV offload could not be closed well")
        finally:
            self.news.put(None)

    def _busy(self) -> bool:
        waiting = any(tier.is_saving for tier in self.tiers)
        return bool(self.saves or self.loads or waiting or not self._jobs.empty())

    def _turn(self) -> None:
        """Wait for something to do, and do all that there is."""
        try:
            self._do(self._jobs.get(timeout=self._patience_s()))
            while True:
                self._do(self._jobs.get_nowait())
        except Empty:
            pass
        self.saves.poll()
        self.loads.poll()
        self._restorer.poll()

    def _do(self, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception:
            # Tiers are guarded, so this is a bug: it costs what the job was to bring.
            logger.exception("a job of KV offload failed")

    def _patience_s(self) -> float | None:
        waits = [self.saves.patience_s(), self.loads.patience_s(), self._restorer.patience_s()]
        if self._closing:
            waits.append(_CLOSING_TURN_S)
        return min((wait for wait in waits if wait is not None), default=None)
