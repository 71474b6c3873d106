"""What the host sees of shelf: a tier of that name for `--kv-offload host,shelf`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.plugin import hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.kv import KvTier, TierPlace
    from pegainfer_core.plugin import KvTierFactory

__pegainfer_api__ = "1.0"


class ShelfFactory:
    """Implements `KvTierFactory`."""

    name = "shelf"

    def open(self, place: TierPlace) -> KvTier:
        """Open the tier; its module is imported here, because every command imports this one."""
        from pegainfer_shelf.tier import ShelfTier

        return ShelfTier(place)


@hookimpl
def kv_tiers() -> Sequence[KvTierFactory]:
    """Offer the tier to the host."""
    return [ShelfFactory()]
