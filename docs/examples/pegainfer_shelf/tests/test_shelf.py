from __future__ import annotations

from pegainfer_shelf.plugin import kv_tiers

from pegainfer_core.kv import KvTier, TierPlace
from pegainfer_core.testing import KvTierConformance


class TestShelf(KvTierConformance):
    def open_tier(self, place: TierPlace) -> KvTier:
        (factory,) = kv_tiers()
        return factory.open(place)
