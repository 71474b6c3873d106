"""What every KV offload tier must keep, as a test class to be subclassed."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, ClassVar

import pytest

from pegainfer_core.kv import TierPlace, TierStats
from pegainfer_core.testing.conformance.summary import watch_class
from pegainfer_core.testing.conformance.tier_bench import TierBench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pegainfer_core.kv import KvTier

_BENCHED = pytest.StashKey[bool]()


class KvTierConformance:
    """The contract of `KvTier`, on small records.

    A tier's author subclasses it in a test module:

        class TestShelf(KvTierConformance):
            def open_tier(self, place):
                return ShelfTier(place)

    Attributes:
        record_bytes: Sizes of the records by group, multiples of 4096.
        capacity_bytes: What the tier is opened with.
        is_bounded: It never holds more than `capacity_bytes`.
        survives_restart: Records are found again after `close` and a second opening at the same
            place. When False they may be, and must then be right.
        timeout_s: Longest wait for any answer.
    """

    record_bytes: ClassVar[dict[int, int]] = {0: 8192, 1: 4096}
    capacity_bytes: ClassVar[int | None] = 1 << 20
    is_bounded: ClassVar[bool] = True
    survives_restart: ClassVar[bool] = False
    timeout_s: ClassVar[float] = 20.0

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Mark the tests for the summary."""
        super().__init_subclass__(**kwargs)
        for base in cls.__mro__:
            if base.__module__ == __name__:
                for name, test in vars(base).items():
                    if name.startswith("test_"):
                        setattr(test, "tier", True)  # noqa: B010 - a function's own attribute

    def open_tier(self, place: TierPlace) -> KvTier:
        """Open the tier under test."""
        raise NotImplementedError("define open_tier, which opens the tier at a place")

    @pytest.fixture
    def bench(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TierBench]:
        """A fresh place; whatever is opened there is closed after the test."""
        node = request.node.getparent(pytest.Class)
        assert node is not None
        if not node.stash.get(_BENCHED, False):
            node.stash[_BENCHED] = True
            watch_class(request.config, node)
        place = TierPlace(
            identity="ab" * 32,
            record_bytes=dict(self.record_bytes),
            capacity_bytes=self.capacity_bytes,
            path=str(tmp_path / "tier"),
        )
        bench = TierBench(self.open_tier, place, self.timeout_s)
        yield bench
        bench.close_all()

    def test_calls_return_futures(self, bench: TierBench) -> None:
        """Of the right results, whether or not there is anything to do."""
        key = bench.key(0)
        lent = bench.lend([key])
        calls: list[tuple[Future[list[bool]] | Future[None], object]] = [
            (bench.tier.contains([key]), [False]),
            (bench.tier.load(lent.records), [False]),
            (bench.tier.drop([key]), None),
            (bench.tier.contains([]), []),
            (bench.tier.load([]), []),
            (bench.tier.save([]), []),
            (bench.tier.drop([]), None),
        ]
        for future, expected in calls:
            assert isinstance(future, Future)
            assert future.result(self.timeout_s) == expected
        saved = bench.tier.save(bench.filled([key]).records)
        assert isinstance(saved, Future)
        assert bench.wait(saved) == [True]

    def test_saved_records_are_loaded_byte_for_byte(self, bench: TierBench) -> None:
        """In another order, in parts, twice, and some of them in one call twice."""
        keys = bench.keys(range(20))
        assert bench.save(keys) == [True] * 20
        for wanted in (keys, keys[::-1], keys[3:9], [keys[5], keys[2], keys[5]]):
            assert bench.load(wanted) == ["right"] * len(wanted)

    def test_answers_lie_parallel_to_the_keys(self, bench: TierBench) -> None:
        """Hits and misses in one call."""
        bench.save(bench.keys([1, 3, 4]))
        keys = bench.keys(range(6))
        held = [False, True, False, True, True, False]
        assert bench.wait(bench.tier.contains(keys)) == held
        assert bench.load(keys) == ["right" if h else "missing" for h in held]

    def test_groups_are_kept_apart(self, bench: TierBench) -> None:
        """Keys of one digest and two groups are two keys, of records of two sizes."""
        a, b = bench.key(0, 0), bench.key(0, 1)
        assert bench.save([a]) == [True]
        assert bench.load([b]) == ["missing"]
        assert bench.save([b]) == [True]
        assert bench.load([b, a, b]) == ["right"] * 3
        bench.wait(bench.tier.drop([a]))
        assert bench.load([a, b]) == ["missing", "right"]

    def test_saving_again_is_a_success(self, bench: TierBench) -> None:
        """Also twice in one call, and twice at once."""
        keys = bench.keys([0, 1, 0])
        assert bench.save(keys) == [True] * 3
        assert bench.save(keys) == [True] * 3
        lent = bench.filled(bench.keys([5, 6]))
        twins = [bench.tier.save(lent.records) for _ in range(2)]
        assert [bench.wait(twin) for twin in twins] == [[True, True]] * 2
        assert bench.load(bench.keys([0, 1, 5, 6])) == ["right"] * 4

    def test_a_save_is_done_when_its_future_is(self, bench: TierBench) -> None:
        """The buffers are the caller's again, and the record is held."""
        lent = bench.filled(bench.keys(range(8)))
        bench.wait(bench.tier.save(lent.records))
        assert lent.checked(bench) == ["right"] * 8, "save changed its buffers"
        assert bench.wait(bench.tier.contains(bench.keys(range(8)))) == [True] * 8
        for record in lent.records:
            record.buffer[:] = bytes(record.buffer.nbytes)
        assert bench.load(bench.keys(range(8))) == ["right"] * 8

    def test_a_load_is_done_when_its_future_is(self, bench: TierBench) -> None:
        """Nothing is written into its buffers later, and nothing outside of them."""
        keys = bench.keys(range(8))
        bench.save(keys)
        lent = bench.lend(keys)
        bench.wait(bench.tier.load(lent.records))
        for record in lent.records:
            record.buffer[:] = b"\x11" * record.buffer.nbytes
        bench.load(keys)
        time.sleep(0.05)
        assert all(set(record.buffer) == {0x11} for record in lent.records)
        assert lent.are_gaps_whole()

    def test_dropped_records_are_gone(self, bench: TierBench) -> None:
        """Only those; dropping what is not held is nothing; saving again brings them back."""
        keys = bench.keys(range(4))
        bench.save(keys)
        bench.wait(bench.tier.drop([keys[1], keys[3], bench.key(99)]))
        assert bench.wait(bench.tier.contains(keys)) == [True, False, True, False]
        assert bench.load(keys) == ["right", "missing", "right", "missing"]
        assert bench.save([keys[1]]) == [True]
        assert bench.load([keys[1]]) == ["right"]

    def test_the_limit_is_kept(self, bench: TierBench) -> None:
        """Three times too much is saved: what is held stays within it, is right, and is new."""
        if not self.is_bounded or self.capacity_bytes is None:
            pytest.skip("the tier states that it has no limit")
        count = 3 * self.capacity_bytes // self.record_bytes[0]
        saved: list[bool] = []
        for start in range(0, count, 16):
            saved += bench.save(bench.keys(range(start, min(start + 16, count))))
            assert bench.tier.stats().used_bytes <= self.capacity_bytes
        loaded = bench.load(bench.keys(range(count)))
        assert "other bytes" not in loaded
        held = [got == "right" for got in loaded]
        assert any(held), "nothing is held"
        assert not any(h for h, s in zip(held, saved, strict=True) if not s), "held, though refused"
        if all(saved):
            assert held[-1], "a full tier gives up the newest record"

    def test_a_call_of_more_than_fits_ends(self, bench: TierBench) -> None:
        """With whatever was kept."""
        count = 2 * (self.capacity_bytes or 1 << 20) // self.record_bytes[0]
        keys = bench.keys(range(count))
        saved = bench.save(keys)
        assert len(saved) == count
        assert "other bytes" not in bench.load(keys)

    def test_many_threads_may_call(self, bench: TierBench) -> None:
        """Each sees what is right, or nothing."""
        numbers = range(24)

        def work(turn: int) -> None:
            for step in range(6):
                keys = bench.keys([(turn * 5 + step * 7 + i) % len(numbers) for i in range(5)])
                bench.save(keys)
                assert "other bytes" not in bench.load(keys)
                if turn % 3 == 0:
                    bench.wait(bench.tier.drop(keys[:2]))

        bench.tier  # noqa: B018 - opened once, before the threads
        with ThreadPoolExecutor(6) as pool:
            for future in [pool.submit(work, turn) for turn in range(6)]:
                future.result(self.timeout_s)

    def test_a_cancelled_call_leaves_its_buffers_alone(self, bench: TierBench) -> None:
        """Whenever `cancel` says that it was in time."""
        keys = bench.keys(range(30))
        bench.save(keys)
        lents = [bench.lend([key]) for key in keys]
        futures = [bench.tier.load(lent.records) for lent in lents]
        cancelled = [future.cancel() for future in reversed(futures)][::-1]
        bench.load(keys)
        for lent, future, gone in zip(lents, futures, cancelled, strict=True):
            if gone:
                assert lent.is_void(0), "a cancelled load wrote into its buffer"
                with pytest.raises(CancelledError):
                    future.result(0)
            else:
                assert bench.wait(future) == [True] and lent.checked(bench) == ["right"]

    def test_stats_count_what_is_held(self, bench: TierBench) -> None:
        """Records and their bytes go up with saves and down with drops."""
        assert bench.tier.stats().num_records == 0
        bench.save([*bench.keys(range(3)), bench.key(0, 1)])
        stats = bench.tier.stats()
        assert isinstance(stats, TierStats)
        assert stats.num_records == 4
        wanted = 3 * self.record_bytes[0] + self.record_bytes[1]
        assert 0 < stats.used_bytes <= 2 * wanted
        bench.wait(bench.tier.drop(bench.keys(range(2))))
        fewer = bench.tier.stats()
        assert fewer.num_records == 2 and fewer.used_bytes < stats.used_bytes

    def test_another_models_records_are_not_found(self, bench: TierBench) -> None:
        """Neither beside it nor after it, at the same place."""
        keys = bench.keys(range(4))
        bench.save(keys)
        other = bench.open("cd" * 32)
        assert bench.wait(other.contains(keys)) == [False] * 4
        assert bench.load(keys, other) == ["missing"] * 4
        bench.save(keys[:1], other)
        bench.close(other)
        assert bench.load(keys) == ["right"] * 4

    def test_close_ends_everything(self, bench: TierBench) -> None:
        """Calls under way end, later ones fail, a second close is nothing, threads are gone."""
        threads = set(threading.enumerate())
        tier = bench.open()
        keys = bench.keys(range(30))
        bench.save(keys, tier)
        lent = bench.lend(keys)
        under_way = tier.load(lent.records)
        bench.close(tier)
        tier.close()
        assert under_way.done(), "close returned before a call under way was done"
        if not under_way.cancelled() and under_way.exception(0) is None:
            assert under_way.result(0) == [True] * 30 and set(lent.checked(bench)) == {"right"}
        for call in (tier.contains, tier.drop):
            with pytest.raises(Exception):  # noqa: B017 - whatever says so
                call(keys).result(self.timeout_s)
        deadline_s = time.monotonic() + min(self.timeout_s, 5.0)
        while (left := set(threading.enumerate()) - threads) and time.monotonic() < deadline_s:
            time.sleep(0.01)
        assert not left, f"threads live on: {left}"

    def test_a_second_opening_finds_what_is_right(self, bench: TierBench) -> None:
        """All of it, if the tier states that it survives a restart; never anything else."""
        keys = [*bench.keys(range(10)), bench.key(0, 1)]
        tier = bench.open()
        bench.save(keys, tier)
        bench.wait(tier.drop(keys[2:4]))
        bench.close(tier)
        again = bench.open()
        held = bench.wait(again.contains(keys))
        loaded = bench.load(keys, again)
        assert loaded == ["right" if h else "missing" for h in held]
        if self.survives_restart:
            assert held == [True, True, False, False, *[True] * 7]
