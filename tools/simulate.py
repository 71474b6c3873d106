"""Simulates the engine under load on the CPU: the real scheduler and pages, a device of costs.

`simulate.py TABLE [LOAD ...]`, where TABLE is
  validate   simulated against measured figures
  steps      the cost model against measured steps
  policies   chunk policies, one table a load
  mixed      long prompts injected into 32 streams, by chunk policy and latency target
  sharing    32k prompts beside 1k prompts, by how chunks are shared out
  reserve    chats that set no limit, by how pages are reserved
  offload    talks in few pages, without and with host memory behind them
  seats      loads at saturation, by most requests at once
  run        one report a load
Loads: c8 to c256, poisson16 to poisson96, chat16, chat32, agents1, agents2, mixed32, long8,
chats256, pressure2, or other numbers. Model and device are Qwen3-4B on one H200; every run checks
all tokens and pages.
"""

from __future__ import annotations

import argparse
import sys
import time

from simulation.jobs import COST_MODELS
from simulation.loads import load
from simulation.policies import NAMES
from simulation.tables import TABLES


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=TABLES)
    parser.add_argument("loads", nargs="*", metavar="LOAD")
    parser.add_argument("--policy", action="append", choices=NAMES, help="repeat for several")
    parser.add_argument("--cost", choices=COST_MODELS, default="fitted", help="cost model")
    parser.add_argument("--seed", type=int, help="of the load (default: the measured row's)")
    parser.add_argument("--pages", type=int, help="KV pages (default: an H200's)")
    args = parser.parse_args()
    for name in args.loads:
        try:
            load(name)
        except ValueError as error:
            parser.error(str(error))
    started = time.perf_counter()
    TABLES[args.command](args)
    print(f"took {time.perf_counter() - started:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
