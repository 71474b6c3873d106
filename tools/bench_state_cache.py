"""Counts what Qwen3.5's prefix cache finds, and what its snapshots cost: 50 agents, one 20k prefix.

`bench_state_cache.py [--agents N] [--turns N] [--gib X ...]`: the real scheduler, pages and
snapshots with 4B's sizes, and a runner that computes nothing. Beside the family's own rule,
snapshots at every 256 tokens. Prints one line for each rule and memory size; takes no GPU.
"""

from __future__ import annotations

import argparse
import random
from typing import TYPE_CHECKING

from pegainfer_qwen35.scheduler import Qwen35Scheduler
from pegainfer_qwen35.snapshots import SnapshotPlanner

from pegainfer_core.contract import GenerateRequest, SamplingParams, ServePlan
from pegainfer_core.engine import DoneStep, Ledger, RowResult, StepPlan
from pegainfer_core.kv import KvManager, SnapshotSpec

if TYPE_CHECKING:
    from pegainfer_core.engine import LaunchedStep, Row

PAGE_TOKENS = 16
STATE_BYTES = int(49.125 * 2**20)
NUM_PAGES = 160_000
VOCAB_SIZE = 248_320
PREFIX_TOKENS = 20_000
MAX_NUM_SEQS = 64


class EveryPlanner(SnapshotPlanner):
    """At every so many tokens, in prompts and answers."""

    distance_tokens = 256

    def _borders(self, row: Row, decodes: bool) -> list[int]:
        stop, distance = row.start + row.num_tokens, self.distance_tokens
        return list(range((row.start // distance + 1) * distance, stop + 1, distance))


class NullRunner:
    """Answers at random, and counts states."""

    def __init__(self) -> None:
        self.num_saves = self.num_prompt_tokens = 0
        self._random = random.Random(0)

    def launch(self, plan: StepPlan) -> LaunchedStep:
        """Choose, and count."""
        self.num_saves += len(plan.saves)
        self.num_prompt_tokens += sum(row.num_tokens for row in plan.rows[plan.num_decode :])
        pick = self._random.randrange
        step = DoneStep([RowResult(pick(VOCAB_SIZE) if r.samples else None) for r in plan.rows])
        step.blocks = False
        return step

    def forget(self, request_id: int) -> None:
        """Nothing is kept."""

    def raise_if_lost(self) -> None:
        """There is no device."""

    def close(self) -> None:
        """Nothing is open."""


class Agents:
    """Each goes on with its whole conversation as soon as it was answered."""

    def __init__(self, planner: type[SnapshotPlanner], num_agents: int, gib: float) -> None:
        spec = SnapshotSpec(int(gib * 2**30 / STATE_BYTES), PAGE_TOKENS)
        self.kv = KvManager(NUM_PAGES, PAGE_TOKENS, snapshots=[spec])
        plan = ServePlan(
            max_model_len=65_536,
            vocab_size=VOCAB_SIZE,
            backend="cuda",
            page_tokens=PAGE_TOKENS,
            num_pages=NUM_PAGES,
            max_num_seqs=MAX_NUM_SEQS,
            max_prefill_tokens=8192,
        )
        self.runner = NullRunner()
        snapshots = planner(self.kv, first_slot=MAX_NUM_SEQS)
        self.scheduler = Qwen35Scheduler(self.runner, self.kv, plan, snapshots)
        self._random = random.Random(1)
        prefix = self._tokens(PREFIX_TOKENS)
        self._talks = [prefix + self._tokens(200 + 10 * i) for i in range(num_agents)]
        self._ledger = Ledger()
        self._num_requests = 0
        self._agent_of: dict[int, int] = {}

    def run(self, num_turns: int) -> None:
        """Let every agent have its turns."""
        turns = [num_turns] * len(self._talks)
        for agent in range(len(self._talks)):
            self._ask(agent)
        while self.scheduler.has_work():
            self.scheduler.step(self._ledger)
            for event in (self._ledger.take_frame() or _NO_FRAME).events:
                agent = self._agent_of[event.request_id]
                kind = type(event).__name__
                if kind == "Tokens":
                    self._talks[agent] += event.token_ids
                elif kind == "Finished":
                    turns[agent] -= 1
                    if turns[agent]:
                        self._talks[agent] += self._tokens(self._random.randrange(100, 1500))
                        self._ask(agent)

    def _ask(self, agent: int) -> None:
        self._num_requests += 1
        request = GenerateRequest(
            request_id=self._num_requests,
            prompt_token_ids=list(self._talks[agent]),
            params=SamplingParams(max_tokens=self._random.randrange(50, 400), ignore_eos=True),
        )
        self._agent_of[self._num_requests] = agent
        self._ledger.open(request)
        self.scheduler.submit(request, self._ledger)

    def _tokens(self, count: int) -> list[int]:
        return [self._random.randrange(VOCAB_SIZE) for _ in range(count)]


class _NoFrame:
    events: tuple[()] = ()


_NO_FRAME = _NoFrame()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--gib", type=float, nargs="+", default=[2.0, 4.0, 8.0, 32.0])
    args = parser.parse_args()
    for gib in args.gib:
        for planner in (SnapshotPlanner, EveryPlanner):
            agents = Agents(planner, args.agents, gib)
            agents.run(args.turns)
            metrics = agents.scheduler.metrics()
            (pool,) = agents.kv.snapshots.pools
            print(
                f"{planner.__name__:16s} {gib:5.1f} GiB: "
                f"hits {metrics.prefix_hit_tokens / metrics.prefix_query_tokens:6.1%}, "
                f"computed {agents.runner.num_prompt_tokens:9,d} prompt tokens, "
                f"saved {agents.runner.num_saves:6,d} states "
                f"({agents.runner.num_saves * STATE_BYTES / 2**30:7.1f} GiB written), "
                f"held {pool.num_held:4d} of {pool.num_total}, skipped {pool.num_skipped}",
                flush=True,
            )


if __name__ == "__main__":
    main()
