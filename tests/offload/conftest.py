"""A disk tier in small files, and a scripted tier with two kinds of guards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pegainfer_core.offload import GuardedTier, disk_folder
from pegainfer_core.offload.disk import DiskTier

from . import disk_bench
from .guard_bench import BRISK, LAYOUT, POLICY, WAIT_S
from .scripted_tier import ScriptedTier


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of eight records."""
    monkeypatch.setattr(disk_folder, "_SEGMENT_BYTES", 8 * (disk_bench.LAYOUT.record_bytes + 4096))


@pytest.fixture
def tier(tmp_path: Path, small_segments: None) -> Iterator[DiskTier]:
    made = disk_bench.open_disk(tmp_path)
    yield made
    made.close()


@pytest.fixture
def scripted() -> ScriptedTier:
    return ScriptedTier()


@pytest.fixture
def guard(scripted: ScriptedTier) -> Iterator[GuardedTier]:
    made = GuardedTier("scripted", scripted, {0: LAYOUT}, POLICY)
    yield made
    assert made.close(WAIT_S)


@pytest.fixture
def brisk(scripted: ScriptedTier) -> Iterator[GuardedTier]:
    """A guard that forgives soon."""
    made = GuardedTier("scripted", scripted, {0: LAYOUT}, BRISK)
    yield made
    assert made.close(WAIT_S)
