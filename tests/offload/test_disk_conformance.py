"""The disk tier keeps the contract of tiers, with direct access and without."""

from __future__ import annotations

import pytest

from pegainfer_core.kv import KvTier, TierPlace
from pegainfer_core.offload import disk
from pegainfer_core.offload.disk import DiskTier
from pegainfer_core.testing import KvTierConformance


class TestDisk(KvTierConformance):
    survives_restart = True

    def open_tier(self, place: TierPlace) -> KvTier:
        return DiskTier(place, reserve_bytes=0)


class TestDiskThroughThePageCache(TestDisk):
    @pytest.fixture(autouse=True)
    def indirect(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(disk, "allows_direct", lambda folder: False)

    def open_tier(self, place: TierPlace) -> KvTier:
        tier = DiskTier(place, reserve_bytes=0)
        assert not tier.direct
        return tier
