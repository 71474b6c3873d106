"""Times steps of Qwen3-4B with and without adapters, dummy weights throughout, on the GPU.

`bench_lora.py [--rank N]`: decode steps with LoRA off, with LoRA on and no adapter in the step, and
with rows of one and of four adapters; then prompts; then how long an adapter takes to load.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from bench_step import QWEN3_4B, Bench

from pegainfer_core.testing.tiny import tiny_adapter

NUM_ADAPTERS = 4
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
#: Room for the most rows, twice on one GPU.
NUM_KV_PAGES = 14_000
CONTEXT = 1024
WEIGHT_BYTES = 8.04e9


def measure(bench: Bench, name: str, num_adapters: int) -> None:
    print(f"{name}:")
    for rows in ROWS:
        print(" ", bench.decode(rows, CONTEXT, WEIGHT_BYTES, num_adapters))
    slot = 0 if num_adapters else -1
    for size in (128, 1024, 8192):
        print(" ", bench.prefill(size, slot), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, default=16)
    rank = parser.parse_args().rank
    folder = Path(tempfile.mkdtemp())
    (folder / "config.json").write_text(json.dumps(QWEN3_4B))
    made = [
        tiny_adapter(folder / f"a{i}", folder, rank=rank, alpha=rank, dtype="bfloat16", seed=i)
        for i in range(NUM_ADAPTERS)
    ]
    plain = Bench(QWEN3_4B, num_kv_pages=NUM_KV_PAGES)
    measure(plain, "LoRA off", 0)
    plain.runner.close()
    del plain
    bench = Bench(
        QWEN3_4B, num_kv_pages=NUM_KV_PAGES, max_loras=NUM_ADAPTERS, max_lora_rank=max(rank, 16)
    )
    assert bench.adapters is not None
    for path in made:
        started = time.perf_counter()
        adapter = bench.adapters.read(path.name, str(path))
        read = time.perf_counter()
        bench.adapters.install(adapter)
        done = time.perf_counter()
        print(f"{path.name}: read in {read - started:.2f} s, written in {done - read:.3f} s")
    measure(bench, "LoRA on, no adapter in the step", 0)
    measure(bench, "one adapter", 1)
    measure(bench, f"{NUM_ADAPTERS} adapters", NUM_ADAPTERS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
