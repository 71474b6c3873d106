"""The scheduler's harness with a host tier, whose copies land when the test says so."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pegainfer_core.engine.offloader import Offloader
from pegainfer_core.offload import GuardedTier, HostPool, RecordLayout
from tests.offload.stepped import PagedMover, SteppedThread
from tests.scheduler.harness import PAGE_TOKENS, Answer, Harness

IDENTITY = "m"
TIER_S = 10.0
"""Guards of tiers have threads of their own."""


class OffloadHarness(Harness):
    """The harness with a host tier.

    Attributes:
        mover: Copies under way.
        pool: Host memory.
        thread: Does its work after every step, and lets copies land there when `eager`.
    """

    def __init__(
        self,
        *,
        host_slots: int = 64,
        eager: bool = True,
        measured: bool = False,
        pool: HostPool | None = None,
        guards: Sequence[GuardedTier] = (),
        **options: object,
    ) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.eager = eager
        self.mover = PagedMover(self.model)
        record_bytes = RecordLayout(page_bytes=self.mover.page_bytes).record_bytes
        self.pool = pool or HostPool(record_bytes)
        if pool is None:
            self.pool.add(self.mover.slab(host_slots * record_bytes))
        self.thread = SteppedThread(self.pool, self.mover, PAGE_TOKENS, guards)
        if not measured:
            # The rates of a model of dictionaries say nothing.
            self.thread.worth.pays = lambda num_by_source: True  # type: ignore[method-assign]
        self.offload = Offloader(self.kv, self.pool, self.thread, self.mover, IDENTITY)
        self.scheduler._offload = self.scheduler._requests._offload = self.offload
        watch = self.offload.watch(self.scheduler._budget.observe)
        self.scheduler._pipeline._observe = watch

    def step(self) -> None:
        super().step()
        self.thread.turn()
        if self.eager:
            self.mover.land_all()
            self.thread.turn()

    def extra_users(self) -> list[int]:
        return [page for pages in self.offload._saver._left.values() for page in pages]

    def expect_baseline(self) -> None:
        """Nothing is pinned, lent, or held once all is done."""
        assert not self.offload.busy
        deadline_s = time.monotonic() + TIER_S
        while self.pool.num_pinned and self.thread.tiers and time.monotonic() < deadline_s:
            time.sleep(0.001)
            self.thread.turn()
        assert self.pool.num_pinned == 0
        assert not any(tier.num_lent for tier in self.thread.tiers)

    def evict(self, num_pages: int | None = None) -> None:
        """Take the device's cached pages away."""
        self.kv.reset_prefix_cache()
        assert self.metrics.kv_cached_pages == 0

    def restored(self, prompt: list[int], **fields: object) -> tuple[Answer, int]:
        """The answer to a prompt, and how many of its tokens were restored for it."""
        before = self.metrics.kv_offload.restored_tokens
        answer = self.run(prompt, **fields)
        return answer, self.metrics.kv_offload.restored_tokens - before
