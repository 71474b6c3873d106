"""KV offload: pages outside the device, in tiers that are asked by content."""

from pegainfer_core.offload.breaker import BreakerState
from pegainfer_core.offload.digests import extended_digests, root_digest
from pegainfer_core.offload.guard import GuardedTier
from pegainfer_core.offload.guard_stats import GuardPolicy, GuardStats
from pegainfer_core.offload.host_growth import HostGrowth
from pegainfer_core.offload.host_pool import HostPool, HostSlot
from pegainfer_core.offload.lower_tier import LowerTier
from pegainfer_core.offload.offload_thread import OffloadThread
from pegainfer_core.offload.page_hold import PageHold
from pegainfer_core.offload.page_keys import PageKeys
from pegainfer_core.offload.record import RECORD_ALIGNMENT, RecordLayout
from pegainfer_core.offload.restore import Restore
from pegainfer_core.offload.saver import PageSaves
from pegainfer_core.offload.tier_call import TierCall
from pegainfer_core.offload.tiers import open_tiers
from pegainfer_core.offload.worth import HOST, Worth

__all__ = [
    "HOST",
    "RECORD_ALIGNMENT",
    "BreakerState",
    "GuardPolicy",
    "GuardStats",
    "GuardedTier",
    "HostGrowth",
    "HostPool",
    "HostSlot",
    "LowerTier",
    "OffloadThread",
    "PageHold",
    "PageKeys",
    "PageSaves",
    "RecordLayout",
    "Restore",
    "TierCall",
    "Worth",
    "extended_digests",
    "open_tiers",
    "root_digest",
]
