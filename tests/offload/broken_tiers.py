"""Tiers with one fault each, and a sound one: run by `test_conformance_teeth`, not collected."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

from pegainfer_shelf.tier import ShelfTier

from pegainfer_core.kv import KvTier, PageKey, TierPlace, TierRecord, TierStats
from pegainfer_core.testing import KvTierConformance


class Sound(ShelfTier):
    pass


class OneWrongBit(ShelfTier):
    def _save(self, key: PageKey, buffer: memoryview) -> bool:
        kept = super()._save(key, buffer)
        content = bytearray(self._shelf[key])
        content[-1] ^= 1
        self._shelf[key] = bytes(content)
        return kept


class ReturnsNoFuture(ShelfTier):
    def contains(self, keys: Sequence[PageKey]) -> Any:
        return [key in self._shelf for key in keys]


class AnswersHitsOnly(ShelfTier):
    def load(self, records: Sequence[TierRecord]) -> Future[list[bool]]:
        held = [record for record in records if record.key in self._shelf]
        return super().load(held)


class GroupBlind(ShelfTier):
    """Groups of one digest share a record."""

    def contains(self, keys: Sequence[PageKey]) -> Future[list[bool]]:
        return super().contains([PageKey(key.digest) for key in keys])

    def drop(self, keys: Sequence[PageKey]) -> Future[None]:
        return super().drop([PageKey(key.digest) for key in keys])

    def _save(self, key: PageKey, buffer: memoryview) -> bool:
        return super()._save(PageKey(key.digest), buffer)

    def _load(self, key: PageKey, buffer: memoryview) -> bool:
        content = self._shelf.get(PageKey(key.digest))
        if content is None:
            return False
        buffer[:] = content.ljust(buffer.nbytes, b"\0")[: buffer.nbytes]
        return True


class KeepsTheBuffer(ShelfTier):
    """Saves a reference instead of a copy."""

    def _save(self, key: PageKey, buffer: memoryview) -> bool:
        kept = super()._save(key, buffer)
        self._shelf[key] = buffer  # type: ignore[assignment]
        return kept


class WritesLate(ShelfTier):
    """A load's future is done before its buffers are."""

    def load(self, records: Sequence[TierRecord]) -> Future[list[bool]]:
        def later() -> None:
            for record in records:
                self._load(*record)

        threading.Timer(0.01, later).start()
        return super().contains([record.key for record in records])


class WritesTwice(ShelfTier):
    """Touches a load's buffers once more after its end."""

    def load(self, records: Sequence[TierRecord]) -> Future[list[bool]]:
        done = super().load(records)
        self._worker.submit(lambda: time.sleep(0.02))
        super().load(records)
        return done


class RefusesRepetition(ShelfTier):
    def _save(self, key: PageKey, buffer: memoryview) -> bool:
        return key not in self._shelf and super()._save(key, buffer)


class DropsNothing(ShelfTier):
    def drop(self, keys: Sequence[PageKey]) -> Future[None]:
        return super().drop([])


class DropsEverything(ShelfTier):
    def drop(self, keys: Sequence[PageKey]) -> Future[None]:
        return super().drop(list(self._shelf))


class Unbounded(ShelfTier):
    def __init__(self, place: TierPlace) -> None:
        super().__init__(place)
        self._capacity_bytes = 1 << 40


class PretendsToKeep(ShelfTier):
    """Says True for what a full tier has no room for."""

    def _save(self, key: PageKey, buffer: memoryview) -> bool:
        if self._used_bytes + buffer.nbytes > self._capacity_bytes:
            return True
        return super()._save(key, buffer)


class SharedScratch(ShelfTier):
    """Loads through one buffer that several threads fill at once."""

    def __init__(self, place: TierPlace) -> None:
        super().__init__(place)
        self._scratch = b""

    def load(self, records: Sequence[TierRecord]) -> Future[list[bool]]:
        future: Future[list[bool]] = Future()
        found = []
        for key, buffer in records:
            self._scratch = self._shelf.get(key, b"")
            time.sleep(0.0005)
            if self._scratch:
                buffer[:] = self._scratch.ljust(buffer.nbytes)[: buffer.nbytes]
            found.append(bool(self._scratch))
        future.set_result(found)
        return future


class CancelsInNameOnly(ShelfTier):
    """Hands out futures of its own that know nothing of the work."""

    def load(self, records: Sequence[TierRecord]) -> Future[list[bool]]:
        answer: Future[list[bool]] = Future()

        def work() -> None:
            time.sleep(0.002)
            found = [self._load(*record) for record in records]
            if not answer.cancelled():
                answer.set_result(found)

        self._worker.submit(work)
        return answer


class CountsNothing(ShelfTier):
    def stats(self) -> TierStats:
        return TierStats()


class SharesModels(ShelfTier):
    """One shelf for all models."""

    SHELVES: ClassVar[dict[str | None, Any]] = {}

    def __init__(self, place: TierPlace) -> None:
        super().__init__(place)
        self._shelf = self.SHELVES.setdefault(place.path, self._shelf)

    def close(self) -> None:
        self._worker.shutdown(cancel_futures=True)


class WorksOnWhenClosed(ShelfTier):
    def close(self) -> None:
        pass


class LeavesAThread(ShelfTier):
    def __init__(self, place: TierPlace) -> None:
        super().__init__(place)
        self._ended = threading.Event()
        threading.Thread(target=self._ended.wait, args=[30], daemon=True).start()


class ForgetsAtRestart(ShelfTier):
    """Stated to survive a restart, which it does not."""


class Revives(ShelfTier):
    """Finds dropped records again after a restart, with the bytes of others."""

    SHELVES: ClassVar[dict[str | None, Any]] = {}

    def __init__(self, place: TierPlace) -> None:
        super().__init__(place)
        self._name = f"{place.path} {place.identity}"
        for key in self.SHELVES.get(self._name, ()):
            self._shelf[key] = bytes(place.record_bytes[key.group])

    def close(self) -> None:
        self.SHELVES[self._name] = list(self._shelf)
        super().close()


def _test_class(tier: type[ShelfTier], **attributes: object) -> type:
    def open_tier(self: object, place: TierPlace) -> KvTier:
        return tier(place)

    members = {"open_tier": open_tier, "timeout_s": 5.0, **attributes}
    return type(f"Test{tier.__name__}", (KvTierConformance,), members)


TestSound = _test_class(Sound)
TestOneWrongBit = _test_class(OneWrongBit)
TestReturnsNoFuture = _test_class(ReturnsNoFuture)
TestAnswersHitsOnly = _test_class(AnswersHitsOnly)
TestGroupBlind = _test_class(GroupBlind)
TestKeepsTheBuffer = _test_class(KeepsTheBuffer)
TestWritesLate = _test_class(WritesLate)
TestWritesTwice = _test_class(WritesTwice)
TestRefusesRepetition = _test_class(RefusesRepetition)
TestDropsNothing = _test_class(DropsNothing)
TestDropsEverything = _test_class(DropsEverything)
TestUnbounded = _test_class(Unbounded)
TestPretendsToKeep = _test_class(PretendsToKeep)
TestSharedScratch = _test_class(SharedScratch)
TestCancelsInNameOnly = _test_class(CancelsInNameOnly)
TestCountsNothing = _test_class(CountsNothing)
TestSharesModels = _test_class(SharesModels)
TestWorksOnWhenClosed = _test_class(WorksOnWhenClosed)
TestLeavesAThread = _test_class(LeavesAThread, timeout_s=0.5)
TestForgetsAtRestart = _test_class(ForgetsAtRestart, survives_restart=True)
TestRevives = _test_class(Revives)
