"""What core itself offers through the hooks, as a plugin that is always there.

The host registers it before all others and does not list it. Its entry point is this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pegainfer_core
from pegainfer_core.plugin.api import hookimpl
from pegainfer_core.plugin.plugin_record import PluginRecord, PluginState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.plugin.extension import KvTierFactory

__pegainfer_api__ = "1.0"

CORE_RECORD: Final = PluginRecord(
    name="pegainfer",
    dist="pegainfer",
    version=pegainfer_core.__version__,
    location=__file__,
    entry_point=__name__,
    state=PluginState.LOADED,
    api=__pegainfer_api__,
    hooks=["kv_tiers"],
)


@hookimpl
def kv_tiers() -> Sequence[KvTierFactory]:
    """The disk tier; imported only where tiers are asked for."""
    from pegainfer_core.offload.disk_factory import DiskTierFactory

    return [DiskTierFactory()]
