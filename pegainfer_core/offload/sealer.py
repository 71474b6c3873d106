"""Seals records on a thread of its own: proving a page takes as long as copying eight.

Knows no tiers.
"""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.offload.host_pool import HostSlot
    from pegainfer_core.offload.record import RecordLayout

logger = logging.getLogger(__name__)


class Sealer:
    """Seals what it is given, in order, each record once.

    Args:
        layout: Of the records.
    """

    def __init__(self, layout: RecordLayout) -> None:
        self._layout = layout
        self._jobs: SimpleQueue[tuple[list[HostSlot], Callable[[], None]] | None] = SimpleQueue()
        self._thread = threading.Thread(
            target=self._run, name="pegainfer-offload-seal", daemon=True
        )
        self._thread.start()

    def seal(self, slots: list[HostSlot], then: Callable[[], None]) -> None:
        """Seal published and pinned slots; `then` is called on the sealer's thread."""
        self._jobs.put((slots, then))

    def close(self) -> None:
        """End the thread behind the work it has."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            slots, then = job
            try:
                for slot in slots:
                    if slot.key is not None and not slot.is_sealed:
                        self._layout.seal(slot.key, slot.buffer)
                        slot.is_sealed = True
            except Exception:
                logger.exception("sealing %d KV records failed", len(slots))
            then()
