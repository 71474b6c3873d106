"""Any history of a KV manager: match, allocate, commit, evict, preempt, abort, copy, reset."""

from __future__ import annotations

import math
from typing import ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.kv.invariants import check
from tests.kv.world import World

MIN_STEPS = 20_000
STEPS = 80

pick = st.integers(0, 11)


class KvMachine(RuleBasedStateMachine):
    """Lets hypothesis choose what happens in a `World`."""

    num_steps: ClassVar[int] = 0
    num_hit_tokens: ClassVar[int] = 0

    @initialize(
        num_pages=st.integers(7, 20), hasher=pick, snapshots=st.booleans(), stride=st.integers(0, 3)
    )
    def start(self, num_pages: int, hasher: int, snapshots: bool, stride: int) -> None:
        self.world = World(num_pages, hasher, snapshots, stride)

    @rule(stem=st.integers(0, 60), length=pick, identity=pick, use_cache=st.integers(0, 5))
    def arrive(self, stem: int, length: int, identity: int, use_cache: int) -> None:
        self.world.arrive(stem, length, identity, use_cache > 0)

    @rule(stem=st.integers(0, 60), length=pick, identity=st.integers(0, 2))
    def serve(self, stem: int, length: int, identity: int) -> None:
        self.world.serve(stem, length, identity)

    @rule(pick=pick, reserve_all=st.booleans(), room=pick)
    def admit(self, pick: int, reserve_all: bool, room: int) -> None:
        self.world.admit(pick, reserve_all, room)

    @rule(pick=pick, num_tokens=st.integers(1, 12))
    def launch(self, pick: int, num_tokens: int) -> None:
        self.world.launch(pick, num_tokens)

    @rule(pick=pick, num_tokens=st.integers(1, 12), token=pick)
    def compute(self, pick: int, num_tokens: int, token: int) -> None:
        self.world.launch(pick, num_tokens)
        self.world.complete(token)

    @rule(token=pick)
    def complete(self, token: int) -> None:
        self.world.complete(token)

    @rule(pick=pick)
    def preempt(self, pick: int) -> None:
        self.world.preempt(pick)

    @rule(pick=pick)
    def abort(self, pick: int) -> None:
        self.world.abort(pick)

    @rule(pick=pick, first=pick, count=st.integers(1, 4))
    def save(self, pick: int, first: int, count: int) -> None:
        self.world.save(pick, first, count)

    @rule(pick=pick, count=st.integers(1, 4))
    def restore(self, pick: int, count: int) -> None:
        self.world.restore(pick, count)

    @rule(pick=pick, num_failed=st.integers(0, 4))
    def land(self, pick: int, num_failed: int) -> None:
        self.world.land(pick, num_failed)

    @rule(chance=pick)
    def reset(self, chance: int) -> None:
        if chance == 0:
            self.world.reset()

    @invariant()
    def all_is_well(self) -> None:
        KvMachine.num_steps += 1
        check(self.world)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.end()
            KvMachine.num_hit_tokens += self.world.num_hit_tokens


def test_any_history_leaves_every_page_accounted_for() -> None:
    KvMachine.num_steps = KvMachine.num_hit_tokens = 0
    # Hypothesis ends some runs early, so a round falls a little short and the next makes it up.
    while (missing := MIN_STEPS - KvMachine.num_steps) > 0:
        checks = settings(
            max_examples=math.ceil(missing / STEPS),
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(KvMachine, settings=checks)
    assert KvMachine.num_hit_tokens > 500, "the cache was hardly used"
