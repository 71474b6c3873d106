"""The stateful harness with a host tier for pages and snapshots, whose copies land when told to."""

from __future__ import annotations

import struct
import time
from collections import deque
from typing import TYPE_CHECKING

from pegainfer_core.backend.host_slab import map_slab
from pegainfer_core.engine.snapshot_lane import SnapshotLane
from pegainfer_core.engine.stateful_offloader import StatefulOffloader
from pegainfer_core.offload import HostPool, RecordLayout
from plugins.pegainfer_qwen35.tests.harness import StatefulHarness
from tests.offload.stepped import PagedMover, SteppedCopy, SteppedThread, _memory
from tests.scheduler.harness import PAGE_TOKENS, Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pegainfer_core.backend import Fence, HostSlab
    from pegainfer_core.offload import GuardedTier
    from plugins.pegainfer_qwen35.tests.stateful_model import StatefulModel

IDENTITY = "m"
TIER_S = 10.0
"""Guards of tiers have threads of their own."""

SPOILT = (-1, -1)


class SteppedStateMover:
    """A `StateMover` of the stateful model; see `PagedMover` for what it spoils."""

    def __init__(self, model: StatefulModel) -> None:
        self._model = model
        self._format = struct.Struct("2q")
        self.page_bytes = self.slot_bytes = self._format.size
        self.under_way: dict[str, deque[SteppedCopy]] = {"save": deque(), "load": deque()}
        self.fails: Callable[[str], bool] = lambda direction: False
        self.num_saved = self.num_loaded = 0

    def open(self) -> None:
        """There is no device."""

    def slab(self, num_bytes: int) -> HostSlab:
        return map_slab(num_bytes)

    def fence(self) -> Fence | None:
        return None

    def save(self, page_ids: Sequence[int], addresses: Sequence[int]) -> SteppedCopy:
        before = [self._model.states[slot] for slot in page_ids]

        def move() -> None:
            for slot, address, expected in zip(page_ids, addresses, before, strict=True):
                assert self._model.states[slot] == expected, "written while it was saved"
                _memory(address, self.slot_bytes)[:] = self._format.pack(*expected)
                self.num_saved += 1

        return self._begin("save", move)

    def load(
        self, addresses: Sequence[int], page_ids: Sequence[int], after: Fence | None
    ) -> SteppedCopy:
        for slot in page_ids:
            self._model.states[slot] = SPOILT

        def move() -> None:
            for address, slot in zip(addresses, page_ids, strict=True):
                assert self._model.states[slot] == SPOILT, "written while it was loaded"
                state = self._format.unpack(bytes(_memory(address, self.slot_bytes)))
                self._model.states[slot] = state  # type: ignore[assignment]
                self.num_loaded += 1

        return self._begin("load", move)

    land_one = PagedMover.land_one
    land_all = PagedMover.land_all

    def close(self) -> None:
        self.land_all()  # type: ignore[misc]

    _begin = PagedMover._begin


class _WithStates(SteppedThread):
    """Whoever waits for pages lets snapshots land too."""

    lane: SteppedThread

    def _pump(self) -> None:
        super()._pump()
        if hasattr(self, "lane"):
            self.lane._pump()


class StatefulOffloadHarness(StatefulHarness):
    """The harness with a host tier.

    Attributes:
        movers: Of pages and of snapshots.
        pools: Host memory of both.
        threads: Do their work after every step, and let copies land there when `eager`.
    """

    def __init__(
        self,
        *,
        host_slots: int = 64,
        host_states: int = 64,
        eager: bool = True,
        pools: tuple[HostPool, HostPool] | None = None,
        guards: Sequence[GuardedTier] = (),
        **options: object,
    ) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.eager = eager
        self.movers = (PagedMover(self.model), SteppedStateMover(self.states))
        sizes = [RecordLayout(page_bytes=mover.page_bytes).record_bytes for mover in self.movers]
        self.pools = pools or (HostPool(sizes[0]), HostPool(sizes[1]))
        if pools is None:
            for pool, mover, count in zip(
                self.pools, self.movers, (host_slots, host_states), strict=True
            ):
                pool.add(mover.slab(count * pool.record_bytes))
        self.thread = _WithStates(self.pools[0], self.movers[0], PAGE_TOKENS, guards)
        lane_thread = SteppedThread(
            self.pools[1],
            self.movers[1],  # type: ignore[arg-type]
            PAGE_TOKENS,
            guards,
        )
        lane_thread._closes_tiers = False
        self.thread.lane = lane_thread
        self.threads = (self.thread, lane_thread)
        for thread in self.threads:
            # The rates of a model of dictionaries say nothing.
            thread.worth.is_quicker = lambda restore_s, num_tokens: True  # type: ignore[method-assign]
        first_slot = self.plan.max_num_seqs
        self.lane = SnapshotLane(
            self.kv, self.pools[1], lane_thread, self.movers[1], IDENTITY, first_slot
        )
        self.offload = StatefulOffloader(
            self.kv, self.pools[0], self.thread, self.movers[0], IDENTITY, self.lane
        )
        self.scheduler._offload = self.scheduler._requests._offload = self.offload
        watch = self.offload.watch(self.scheduler._budget.observe)
        self.scheduler._pipeline._observe = watch

    def step(self) -> None:
        super().step()
        self.turn()
        if self.eager:
            for mover in self.movers:
                mover.land_all()  # type: ignore[misc]
            self.turn()

    def turn(self) -> None:
        for thread in self.threads:
            thread.turn()

    def extra_users(self) -> list[int]:
        return [page for pages in self.offload._saver._left.values() for page in pages]

    def check_pages(self) -> None:
        super(StatefulHarness, self).check_pages()
        if not hasattr(self, "lane"):
            return
        (pool,) = self.kv.snapshots.pools or (None,)
        if pool is None:
            return
        assert pool.num_free + pool.num_taken + pool.num_held == pool.num_total
        assert pool.num_pinned <= len(self.running) + self.lane.num_lent
        if not self.running and not self.offload.busy:
            assert pool.num_taken == 0
            assert pool.num_pinned <= self.lane.num_lent

    def expect_baseline(self) -> None:
        """Nothing is pinned, lent, or held once all is done."""
        deadline_s = time.monotonic() + TIER_S
        while True:
            for mover in self.movers:
                mover.land_all()  # type: ignore[misc]
            self.turn()
            self.offload.commit(())
            held = sum(pool.num_pinned for pool in self.pools)
            if not held or not self.thread.tiers or time.monotonic() > deadline_s:
                break
            time.sleep(0.001)
        assert held == 0
        assert not self.offload.busy
        assert self.lane.num_lent == 0
        for pool in self.kv.snapshots.pools:
            assert pool.num_taken == pool.num_pinned == 0
        assert not any(tier.num_lent for thread in self.threads for tier in thread.tiers)

    def evict(self) -> None:
        """Take the device's cached pages, and with them the snapshots, away."""
        self.kv.reset_prefix_cache()
        assert self.metrics.kv_cached_pages == 0

    def restored(self, prompt: list[int], **fields: object) -> tuple[Answer, int]:
        """The answer to a prompt, and how many of its tokens were restored for it."""
        before = self.metrics.kv_offload.restored_tokens
        answer = self.run(prompt, **fields)
        return answer, self.metrics.kv_offload.restored_tokens - before


class AheadOffloadHarness(StatefulOffloadHarness):
    """Results are read only after the launch of the next step."""

    ahead = True
