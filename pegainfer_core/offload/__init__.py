"""KV offload: pages outside the device, in tiers that are asked by content."""

from pegainfer_core.offload.breaker import BreakerState
from pegainfer_core.offload.guard import GuardedTier
from pegainfer_core.offload.guard_stats import GuardPolicy, GuardStats
from pegainfer_core.offload.record import RECORD_ALIGNMENT, RecordLayout
from pegainfer_core.offload.tier_call import TierCall

__all__ = [
    "RECORD_ALIGNMENT",
    "BreakerState",
    "GuardPolicy",
    "GuardStats",
    "GuardedTier",
    "RecordLayout",
    "TierCall",
]
