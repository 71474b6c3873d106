"""Put a KV manager through many random steps, and check everything after each.

Run as `PYTHONPATH=. python tools/soak_kv.py --steps 1000000`. The checks are those of
`tests/kv/test_any_history.py`; a failure names the seed that brings it back.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

from tests.kv.invariants import check
from tests.kv.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS_A_WORLD = 2_000


def actions(world: World, rng: random.Random) -> dict[str, tuple[int, Callable[[], None]]]:
    """What can happen, with its weight."""

    def number() -> int:
        return rng.randrange(12)

    return {
        "arrive": (
            6,
            lambda: world.arrive(rng.randrange(61), number(), number(), number() > 1),
        ),
        "serve": (3, lambda: world.serve(rng.randrange(61), number(), number())),
        "admit": (8, lambda: world.admit(number(), number() > 9, number())),
        "launch": (12, lambda: world.launch(number(), 1 + number())),
        "complete": (14, lambda: world.complete(number())),
        "preempt": (2, lambda: world.preempt(number())),
        "abort": (2, lambda: world.abort(number())),
        "save": (4, lambda: world.save(number(), number(), 1 + number() % 4)),
        "restore": (4, lambda: world.restore(number(), 1 + number() % 4)),
        "land": (6, lambda: world.land(number(), max(number() - 7, 0))),
        "reset": (1, lambda: world.reset() if number() == 0 else None),
    }


def live(seed: int, num_steps: int, counts: Counter[str]) -> None:
    """One world from beginning to end."""
    rng = random.Random(seed)
    world = World(rng.randrange(7, 40), rng.randrange(12), rng.random() < 0.5, rng.randrange(4))
    choices = actions(world, rng)
    names = list(choices)
    weights = [weight for weight, _ in choices.values()]
    for _ in range(num_steps):
        [name] = rng.choices(names, weights)
        choices[name][1]()
        counts[name] += 1
        check(world)
        # A crowd only makes a step slower.
        if len(world.waiting) > 12:
            world.abort(0)
    counts["hit tokens"] += world.num_hit_tokens
    counts["evicted pages"] += world.kv.pool.num_evicted
    counts["evicted snapshots"] += sum(pool.num_evicted for pool in world.kv.snapshots.pools)
    world.end()


def main() -> int:
    """Run, and say what happened how often."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first world")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    started = time.monotonic()
    num_worlds = -(-options.steps // STEPS_A_WORLD)
    for seed in range(options.seed, options.seed + num_worlds):
        try:
            live(seed, STEPS_A_WORLD, counts)
        except Exception:
            print(f"failed: --steps {STEPS_A_WORLD} --seed {seed}", file=sys.stderr)
            raise
    spent_s = time.monotonic() - started
    print(f"{num_worlds * STEPS_A_WORLD} steps in {num_worlds} worlds, {spent_s:.0f} s, no fault")
    for name, count in counts.items():
        print(f"  {name}: {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
