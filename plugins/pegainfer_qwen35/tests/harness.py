"""Drives Qwen3.5's scheduler on the stateful model, and holds every answer against it alone."""

from __future__ import annotations

from typing import Literal

from pegainfer_qwen35.scheduler import Qwen35Scheduler
from pegainfer_qwen35.snapshots import SnapshotPlanner

from pegainfer_core.engine.admission import HEADROOM_TOKENS
from pegainfer_core.kv import BlockHasher, KvManager, SnapshotSpec
from plugins.pegainfer_qwen35.tests.stateful_model import StatefulModel
from tests.scheduler.harness import PAGE_TOKENS, Harness


class StatefulHarness(Harness):
    """The harness of paged models, with states and their snapshots."""

    def __init__(
        self,
        *,
        num_snapshots: int = 6,
        prefix_cache: bool = True,
        reserve: Literal["on-demand", "worst-case"] = "on-demand",
        hasher: BlockHasher | None = None,
        headroom_tokens: int = HEADROOM_TOKENS,
        **options: int | float | None,
    ) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        plan, num_pages = self.plan, self.plan.num_pages or 0
        spec = SnapshotSpec(num_snapshots, PAGE_TOKENS)
        self.kv = KvManager(
            num_pages, PAGE_TOKENS, prefix_cache=prefix_cache, hasher=hasher, snapshots=[spec]
        )
        self.states = StatefulModel(
            PAGE_TOKENS, plan.max_prefill_tokens, num_pages, ahead=self.ahead
        )
        self.model = self.states
        snapshots = SnapshotPlanner(self.kv, first_slot=plan.max_num_seqs)
        self.scheduler = Qwen35Scheduler(  # type: ignore[assignment]
            self.model, self.kv, plan, snapshots, reserve
        )
        self.scheduler._admission._headroom_tokens = headroom_tokens

    def check_pages(self) -> None:
        super().check_pages()
        for pool in self.kv.snapshots.pools:
            assert pool.num_free + pool.num_taken + pool.num_held == pool.num_total
            assert pool.num_pinned <= len(self.running)
            if not self.running:
                assert pool.num_taken == pool.num_pinned == 0


class AheadHarness(StatefulHarness):
    """Results are read only after the launch of the next step."""

    ahead = True
