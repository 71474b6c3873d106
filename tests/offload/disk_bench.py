"""Sealed records for tests of the disk tier, by number, with their buffers aligned."""

from __future__ import annotations

import hashlib
import mmap
import random
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from pegainfer_core.kv import PageKey, TierPlace, TierRecord
from pegainfer_core.offload.disk import DiskTier
from pegainfer_core.offload.record import RecordLayout

LAYOUT = RecordLayout(page_bytes=9000)
WAIT_S = 30.0
ROOT = Path(__file__).resolve().parents[2]


def place(path: Path, *, records: int = 1000, identity: str = "ab" * 32) -> TierPlace:
    """With room for so many records, and a little less than one more."""
    slot_bytes = LAYOUT.record_bytes + 4096
    return TierPlace(
        identity=identity,
        record_bytes={0: LAYOUT.record_bytes},
        capacity_bytes=records * slot_bytes + 4096 * 4,
        path=str(path),
    )


def open_disk(path: Path, *, records: int = 1000, identity: str = "ab" * 32) -> DiskTier:
    return DiskTier(place(path, records=records, identity=identity), reserve_bytes=0)


def key(number: int) -> PageKey:
    return PageKey(hashlib.sha256(f"page {number}".encode()).digest())


def keys(numbers: Iterable[int]) -> list[PageKey]:
    return [key(number) for number in numbers]


def blank(numbers: Sequence[int]) -> list[TierRecord]:
    size = LAYOUT.record_bytes
    slab = memoryview(mmap.mmap(-1, max(len(numbers), 1) * size))
    buffers = [slab[i * size : (i + 1) * size] for i in range(len(numbers))]
    return [TierRecord(key(number), b) for number, b in zip(numbers, buffers, strict=True)]


def sealed(numbers: Sequence[int]) -> list[TierRecord]:
    records = blank(numbers)
    for number, record in zip(numbers, records, strict=True):
        record.buffer[: LAYOUT.page_bytes] = random.Random(number).randbytes(LAYOUT.page_bytes)
        LAYOUT.seal(record.key, record.buffer)
    return records


def save(tier: DiskTier, numbers: Sequence[int]) -> list[bool]:
    return tier.save(sealed(numbers)).result(WAIT_S)


def held(tier: DiskTier, numbers: Iterable[int]) -> list[int]:
    """Which of the numbers are held."""
    numbers = list(numbers)
    found = tier.contains(keys(numbers)).result(WAIT_S)
    return [number for number, there in zip(numbers, found, strict=True) if there]


def load(tier: DiskTier, numbers: Iterable[int]) -> list[int]:
    """Which of the numbers are loaded; each of them is proven to be right."""
    numbers = list(numbers)
    records = blank(numbers)
    found = tier.load(records).result(WAIT_S)
    for record, expected, there in zip(records, sealed(numbers), found, strict=True):
        assert not there or record.buffer == expected.buffer, "a load gave other bytes"
    return [number for number, there in zip(numbers, found, strict=True) if there]


def reopened(tier: DiskTier, *, records: int = 1000) -> DiskTier:
    tier.close()
    return open_disk(tier.folder.parent, records=records)


def segments(tier: DiskTier) -> list[Path]:
    return sorted(tier.folder.glob("*.seg"))


def python(*words: str) -> list[str]:
    """A process that saves for ever."""
    return [sys.executable, "-m", "tests.offload.disk_bench", *words]


def save_for_ever(folder: Path) -> None:
    """Save batches that evict each other until killed; a line tells of each batch."""
    tier = open_disk(folder, records=40)
    batch = 0
    while True:
        assert all(save(tier, range(batch * 8, batch * 8 + 8)))
        batch += 1
        print(batch, flush=True)


if __name__ == "__main__":
    save_for_ever(Path(sys.argv[1]))
