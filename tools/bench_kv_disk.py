"""Measures the disk tier on a folder's disk: `python tools/bench_kv_disk.py FOLDER`.

Saves sealed records of a model's page size, opens the folder anew, and loads them in shuffled order
and in the order of saving, bare and through the guard, which also proves every byte. Prints a
line of JSON for each. Reads go past the page cache where the file system allows it, and `direct`
says whether it does; where it does not, the figures are those of memory.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import mmap
import os
import random
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pegainfer_core.kv import PageKey, TierPlace, TierRecord
from pegainfer_core.offload import GuardedTier, RecordLayout
from pegainfer_core.offload.disk import DiskTier

if TYPE_CHECKING:
    from concurrent.futures import Future

QWEN3_4B_PAGE_BYTES: Final = 36 * 2 * 8 * 128 * 16 * 2
RECORDS_PER_CALL: Final = 64


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure the disk tier.")
    parser.add_argument("folder", type=Path, help="a folder on the disk; a new one is made in it")
    parser.add_argument("--page-bytes", type=int, default=QWEN3_4B_PAGE_BYTES)
    parser.add_argument("--records", type=int, default=512)
    parser.add_argument("--turns", type=int, default=3)
    return parser.parse_args()


def records_of(layout: RecordLayout, keys: list[PageKey]) -> list[TierRecord]:
    """Buffers whose memory is there: the first touch of a page costs more than reading it."""
    size = layout.record_bytes
    slab = memoryview(mmap.mmap(-1, len(keys) * size))
    for offset in range(0, len(slab), mmap.PAGESIZE):
        slab[offset] = 1
    return [TierRecord(key, slab[i * size : (i + 1) * size]) for i, key in enumerate(keys)]


def timed(calls: list[Future[list[bool]]], begun_s: float, **about: object) -> None:
    """Wait, and print the rate."""
    found = [held for call in calls for held in call.result()]
    took_s = time.perf_counter() - begun_s
    assert all(found), f"{found.count(False)} records are missing"
    num_bytes = int(str(about.pop("num_bytes")))
    rate = {"gb_per_s": round(num_bytes / took_s / 1e9, 3), "seconds": round(took_s, 4)}
    print(json.dumps({**about, **rate}), flush=True)


def batches(records: list[TierRecord]) -> list[list[TierRecord]]:
    """As many in a call as the offloader gives it."""
    starts = range(0, len(records), RECORDS_PER_CALL)
    return [records[start : start + RECORDS_PER_CALL] for start in starts]


def sealed(layout: RecordLayout, count: int) -> list[TierRecord]:
    """Records with contents and trailers."""
    keys = [PageKey(hashlib.sha256(str(number).encode()).digest()) for number in range(count)]
    records = records_of(layout, keys)
    for key, buffer in records:
        buffer[: layout.page_bytes] = os.urandom(layout.page_bytes)
        layout.seal(key, buffer)
    return records


def measure_saves(place: TierPlace, records: list[TierRecord], num_bytes: int) -> None:
    """Into an empty folder, so that making its files counts too."""
    tier = DiskTier(place, reserve_bytes=0)
    begun_s = time.perf_counter()
    calls = [tier.save(batch) for batch in batches(records)]
    timed(calls, begun_s, what="save", direct=tier.direct, num_bytes=num_bytes)
    tier.close()


def measure_loads(place: TierPlace, records: list[TierRecord], layout: RecordLayout) -> None:
    """Bare and guarded."""
    begun_s = time.perf_counter()
    tier = DiskTier(place, reserve_bytes=0)
    print(json.dumps({"what": "open", "seconds": round(time.perf_counter() - begun_s, 4)}))
    guard = GuardedTier("disk", tier, {0: layout})
    shuffled = random.Random(0).sample(records, len(records))
    num_bytes = len(records) * layout.record_bytes
    for order, chosen in (("as saved", records), ("shuffled", shuffled)):
        about = {"order": order, "direct": tier.direct, "num_bytes": num_bytes}
        begun_s = time.perf_counter()
        timed([tier.load(b) for b in batches(chosen)], begun_s, what="load", **about)
        begun_s = time.perf_counter()
        calls = [guard.load(b).outcome for b in batches(chosen)]
        timed(calls, begun_s, what="load and prove", **about)
    guard.close()


def main() -> None:
    """Save, open anew, load."""
    options = parse()
    layout = RecordLayout(page_bytes=options.page_bytes)
    records = sealed(layout, options.records)
    num_bytes = len(records) * layout.record_bytes
    folder = options.folder / f"bench-kv-disk-{os.getpid()}"
    place = TierPlace(
        identity="be" * 32,
        record_bytes={0: layout.record_bytes},
        capacity_bytes=2 * num_bytes + (1 << 30),
        path=str(folder),
    )
    try:
        measure_saves(place, records, num_bytes)
        for _ in range(options.turns):
            measure_loads(place, records, layout)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
