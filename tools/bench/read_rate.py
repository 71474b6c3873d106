"""How fast this machine reads a model's weights once: the limit of a decode step on NumPy.

Prints the time to read 2.38 GB of float32 (the Qwen3-0.6B shapes) with two threads, and that of one
matrix-vector product over the same bytes. Run it before and after what it is compared with: shared
machines change their minds.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

NUM_WEIGHTS = 596_049_920
WIDTH = 1024
ROUNDS = 7
_BLOCK = 1 << 18


def best_ms(work: Callable[[], object]) -> float:
    """The fastest of several runs, in milliseconds."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best * 1e3


def main() -> None:
    """Measure and print."""
    weights = np.ones(NUM_WEIGHTS, np.float32)
    halves = np.split(weights, 2)
    threads = ThreadPoolExecutor(2)

    def reduce(half: np.ndarray) -> None:
        for start in range(0, len(half), _BLOCK):
            half[start : start + _BLOCK].max()

    matrix = weights[: NUM_WEIGHTS // WIDTH * WIDTH].reshape(-1, WIDTH)
    vector, out = np.ones(WIDTH, np.float32), np.empty(len(matrix), np.float32)
    read_ms = best_ms(lambda: list(threads.map(reduce, halves)))
    product_ms = best_ms(lambda: np.dot(matrix, vector, out=out))
    print(f"read {read_ms:.1f} ms, matrix-vector product {product_ms:.1f} ms")


if __name__ == "__main__":
    main()
