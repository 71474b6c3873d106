"""A guarded disk under many threads: every call ends, buffers come home, loads are right."""

from __future__ import annotations

import logging
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pegainfer_core.offload import GuardedTier, GuardPolicy, TierCall

from .disk_bench import LAYOUT, WAIT_S, blank, keys, open_disk, sealed

NUMBERS = range(60)
TURNS = 60


def work(guard: GuardedTier, seed: int) -> int:
    """Random calls, some cancelled and some with no time to spare; returns the records proven."""
    dice = random.Random(seed)
    contents = {number: bytes(record.buffer) for number, record in zip(
        NUMBERS, sealed(NUMBERS), strict=True)}  # fmt: skip
    num_proven = 0
    for _ in range(TURNS):
        numbers = dice.sample(NUMBERS, dice.randint(1, 12))
        limit_s = dice.choice([None, None, None, 0.0, 0.001])
        what = dice.choice(["contains", "save", "save", "load", "load", "load", "drop"])
        records = sealed(numbers) if what == "save" else blank(numbers)
        if what in ("save", "load"):
            call: TierCall[list[bool]] = getattr(guard, what)(records, limit_s)
        else:
            call = getattr(guard, what)(keys(numbers), limit_s)
        if dice.random() < 0.2:
            call.cancel()
        found = call.outcome.result(WAIT_S)
        assert len(found) == len(numbers)
        if what == "load":
            for number, record, proven in zip(numbers, records, found, strict=True):
                assert not proven or record.buffer == contents[number]
                num_proven += proven
        call.settled.result(WAIT_S)
        for record in records:
            record.buffer[:16] = b"\x77" * 16
        if dice.random() < 0.1:
            time.sleep(0.002)
        assert all(record.buffer[:16] == b"\x77" * 16 for record in records)
    return num_proven


def test_nothing_is_lost_between_threads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    threads = set(threading.enumerate())
    policy = GuardPolicy(call_deadline_s=WAIT_S, max_failures=10**9)
    guard = GuardedTier("disk", open_disk(tmp_path, records=40), {0: LAYOUT}, policy)
    with ThreadPoolExecutor(5) as pool:
        proven = list(pool.map(lambda seed: work(guard, seed), range(5)))
    stats = guard.stats()
    assert guard.close()
    assert sum(proven) > 100 and stats.num_corrupt == stats.num_failures == 0
    assert stats.num_held_calls == stats.held_bytes == 0
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert not set(threading.enumerate()) - threads
