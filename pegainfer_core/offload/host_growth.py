"""Grows the host pool slab by slab, while the engine already serves. Knows no pages."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pegainfer_core.backend import PageMover
    from pegainfer_core.offload.host_pool import HostPool

logger = logging.getLogger(__name__)

SLAB_BYTES: Final = 256 << 20
"""Pinning memory takes 0.65 s a GiB, so it is done in pieces; a record may need a larger one."""


class HostGrowth:
    """A thread that ends when the pool has its size.

    Args:
        pool: What grows.
        mover: Gives memory.
        capacity_bytes: Most bytes of records; at least one record is held.
    """

    def __init__(self, pool: HostPool, mover: PageMover, capacity_bytes: int) -> None:
        self._pool = pool
        self._mover = mover
        self._num_slots = max(capacity_bytes // pool.record_bytes, 1)
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="pegainfer-offload-memory", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the thread; waits for one slab at most."""
        self._stopped.set()
        self._thread.join()

    def join(self) -> None:
        """Wait until the pool has its size."""
        self._thread.join()

    def _run(self) -> None:
        record_bytes = self._pool.record_bytes
        slab_slots = max(SLAB_BYTES // record_bytes, 1)
        while not self._stopped.is_set():
            left = self._num_slots - self._pool.num_slots
            if left <= 0:
                return
            try:
                slab = self._mover.slab(min(left, slab_slots) * record_bytes)
            except MemoryError as error:
                logger.warning(
                    "KV offload keeps %.1f GiB of the %.1f GiB that --kv-offload-host-gib asks "
                    "for: %s",
                    self._pool.num_slots * record_bytes / 2**30,
                    self._num_slots * record_bytes / 2**30,
                    error,
                )
                return
            self._pool.add(slab)
