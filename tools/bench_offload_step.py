"""Times what KV offload adds to the engine's thread in a decode step that restores nothing.

`bench_offload_step.py [ROWS]`: rows decode behind contexts of 1,024 tokens, one in 16 fills a page
in each step, and copies take no time. Prints microseconds a step.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING

from pegainfer_core.backend.host_slab import map_slab
from pegainfer_core.contract import GenerateRequest
from pegainfer_core.engine import KvOffload, NoOffload, Sequence
from pegainfer_core.engine.offloader import Offloader
from pegainfer_core.kv import KvManager
from pegainfer_core.offload import HostPool, OffloadThread, RecordLayout

if TYPE_CHECKING:
    from collections.abc import Sequence as Ordered

    from pegainfer_core.backend import Fence, HostSlab

PAGE_TOKENS = 16
CONTEXT_TOKENS = 1024
STEPS = 600
STEP_S = 0.004
"""The thread waits so long between steps, as it does for a device."""


class NoCopy:
    """A page mover that moves nothing, and its ticket."""

    def open(self) -> None:
        """There is no device."""

    def slab(self, num_bytes: int) -> HostSlab:
        """Host memory."""
        return map_slab(num_bytes)

    def fence(self) -> Fence | None:
        """Nothing to wait for."""
        return None

    def save(self, page_ids: Ordered[int], addresses: Ordered[int]) -> NoCopy:
        """Nothing."""
        return self

    def load(self, addresses: Ordered[int], page_ids: Ordered[int], after: Fence | None) -> NoCopy:
        """Nothing."""
        return self

    def done(self) -> bool:
        """At once."""
        return True

    def close(self) -> None:
        """Nothing."""


class Rows:
    """Running rows with pages of their own, and what publishes these."""

    def __init__(self, kv: KvManager, offload: KvOffload, num_rows: int) -> None:
        self._offload = offload
        self._rows = [_row(kv, index) for index in range(num_rows)]
        offload.begin(self._rows)
        offload.commit(self._rows)

    def step(self) -> float:
        """Microseconds of a step's commit."""
        for row in self._rows:
            row.token_ids.append(7)
            row.num_completed += 1
        started = time.perf_counter()
        self._offload.commit(self._rows)
        return 1e6 * (time.perf_counter() - started)


def _row(kv: KvManager, index: int) -> Sequence:
    ids = [(index * 7919 + i) % 50000 for i in range(CONTEXT_TOKENS + index % PAGE_TOKENS)]
    request = GenerateRequest(request_id=index + 1, prompt_token_ids=ids)
    row = Sequence(request, STEPS + 1, chain=kv.new_chain())
    tokens = len(ids) + STEPS
    if not (kv.admit(row, reserve_tokens=tokens, room_tokens=tokens) and kv.grow(row, tokens)):
        raise RuntimeError("too few pages")
    row.num_computed = row.num_completed = len(ids)
    return row


def main() -> int:
    num_rows = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    num_pages = num_rows * (CONTEXT_TOKENS + STEPS + PAGE_TOKENS) // PAGE_TOKENS + num_rows + 1
    kv = KvManager(num_pages, PAGE_TOKENS)
    without = Rows(kv, NoOffload(kv), num_rows)
    kv, mover, layout = KvManager(num_pages, PAGE_TOKENS), NoCopy(), RecordLayout(page_bytes=4096)
    pool = HostPool(layout.record_bytes)
    pool.add(mover.slab(2 * num_pages * layout.record_bytes))
    thread = OffloadThread(pool, mover, layout, PAGE_TOKENS)
    thread.start()
    offload = Offloader(kv, pool, thread, mover, "bench")
    loaded = Rows(kv, offload, num_rows)
    time.sleep(1.0)
    times: dict[str, list[float]] = {"without offload": [], "with offload": []}
    for _ in range(STEPS):
        for rows, taken in zip((without, loaded), times.values(), strict=True):
            taken.append(rows.step())
            time.sleep(STEP_S)
    offload.close()
    for name, taken in times.items():
        p50, p90 = statistics.median(taken), statistics.quantiles(taken, n=10)[8]
        print(f"{name:16} mean {statistics.fmean(taken):7.1f}  p50 {p50:7.1f}  p90 {p90:7.1f} us")
    added = statistics.median(times["with offload"]) - statistics.median(times["without offload"])
    print(f"added: {added:.1f} us a step of {num_rows} rows, {num_rows / PAGE_TOKENS:.0f} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
