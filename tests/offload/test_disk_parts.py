"""The parts of the disk tier: pieces, slots, and a whole life against a model of it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pegainfer_core.kv import PageKey, TierRecord
from pegainfer_core.offload import disk_folder
from pegainfer_core.offload.disk import DiskTier
from pegainfer_core.offload.disk_pieces import PIECE_BYTES, Placed, cut_pieces
from pegainfer_core.offload.slot_table import SlotTable
from pegainfer_core.offload.transfer import Transfer

from .disk_bench import LAYOUT, held, keys, load, open_disk, save

NUMBERS = st.lists(st.integers(0, 19), max_size=9)


@given(st.lists(st.integers(0, 3000), max_size=60), st.sampled_from([4096, 1 << 20, 3 << 20]))
def test_pieces_are_runs_of_neighbours(slots: list[int], record_bytes: int) -> None:
    buffer = memoryview(bytes(record_bytes))
    transfer = Transfer(1)
    placed = [Placed(slot, TierRecord(PageKey(b""), buffer), transfer, 0) for slot in slots]
    pieces = cut_pieces(0, placed)
    assert [p.slot for piece in pieces for p in piece.placed] == sorted(slots)
    for piece in pieces:
        numbers = [p.slot for p in piece.placed]
        assert numbers == list(range(piece.first, piece.first + len(numbers)))
        assert len(numbers) * record_bytes <= max(PIECE_BYTES, record_bytes)
        assert len(numbers) <= 512


def test_a_slot_that_is_read_is_not_given_away() -> None:
    table: SlotTable[str] = SlotTable()
    table.add_slots([0, 1])
    for digest in (b"a", b"b"):
        slot = table.take()
        assert slot is not None
        table.start(digest, slot, "")
        table.publish(digest)
    table.pin(0)
    assert table.take() == 1, "the younger record goes, since the older one is read"
    assert table.take() is None
    slot = table.forget(b"a")
    assert slot == 0
    table.retire(slot)
    assert table.take() is None and table.num_free == 0
    table.unpin(0)
    assert table.take() == 0


class DiskLife(RuleBasedStateMachine):
    """Saves, loads, drops and restarts; what is held may shrink only where room is short."""

    @initialize(records=st.sampled_from([6, 11, 40]))
    def begin(self, records: int) -> None:
        self.scratch = tempfile.TemporaryDirectory()
        self.records = records
        self.patch = mock.patch.object(
            disk_folder, "_SEGMENT_BYTES", 4 * (LAYOUT.record_bytes + 4096)
        )
        self.patch.start()
        self.tier = self.opened()
        self.saved: set[int] = set()

    def opened(self) -> DiskTier:
        return open_disk(Path(self.scratch.name), records=self.records)

    @rule(numbers=NUMBERS)
    def save(self, numbers: list[int]) -> None:
        kept = save(self.tier, numbers)
        if len(set(numbers)) <= self.records:
            assert all(kept)
        self.saved |= {number for number, there in zip(numbers, kept, strict=True) if there}

    @rule(numbers=NUMBERS)
    def load(self, numbers: list[int]) -> None:
        expected = held(self.tier, numbers)
        assert load(self.tier, numbers) == expected
        assert set(expected) <= self.saved

    @rule(numbers=NUMBERS)
    def drop(self, numbers: list[int]) -> None:
        self.tier.drop(keys(numbers)).result()
        self.saved -= set(numbers)
        assert held(self.tier, numbers) == []

    @rule()
    def restart(self) -> None:
        before = held(self.tier, range(20))
        self.tier.close()
        self.tier = self.opened()
        assert held(self.tier, range(20)) == before

    @invariant()
    def limits_are_kept(self) -> None:
        if not hasattr(self, "tier"):
            return
        there = held(self.tier, range(20))
        assert self.tier.stats().num_records == len(there) <= self.records
        assert set(there) <= self.saved
        if self.records >= 20:
            assert set(there) == self.saved

    def teardown(self) -> None:
        if hasattr(self, "tier"):
            self.tier.close()
            self.patch.stop()
            self.scratch.cleanup()


TestDiskLife = DiskLife.TestCase
TestDiskLife.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
