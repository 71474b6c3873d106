"""Offers the disk tier under its name; light, because command lines are checked with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegainfer_core.kv import KvTier, TierPlace


class DiskTierFactory:
    """Implements `KvTierFactory`."""

    name = "disk"

    def open(self, place: TierPlace) -> KvTier:
        """Open the tier in the place's folder.

        Raises:
            ConfigError: The folder cannot be used.
        """
        from pegainfer_core.offload.disk import DiskTier

        return DiskTier(place)
