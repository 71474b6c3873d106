"""What core itself offers through the hooks, as a plugin that is always there.

The host registers it before all others and does not list it. Its entry point is this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pegainfer_core
from pegainfer_core.plugin.api import hookimpl
from pegainfer_core.plugin.plugin_record import PluginRecord, PluginState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pegainfer_core.plugin.extension import KvTierFactory
    from pegainfer_core.text import ReasoningParserFactory, ToolParserFactory

__pegainfer_api__ = "1.0"

CORE_RECORD: Final = PluginRecord(
    name="pegainfer",
    dist="pegainfer",
    version=pegainfer_core.__version__,
    location=__file__,
    entry_point=__name__,
    state=PluginState.LOADED,
    api=__pegainfer_api__,
    hooks=["kv_tiers", "reasoning_parsers", "tool_parsers"],
)


@hookimpl
def kv_tiers() -> Sequence[KvTierFactory]:
    """The disk tier; imported only where tiers are asked for."""
    from pegainfer_core.offload.disk_factory import DiskTierFactory

    return [DiskTierFactory()]


@hookimpl
def tool_parsers() -> Mapping[str, ToolParserFactory]:
    """The formats of the families that this project knows; imported only where chats are read."""
    from pegainfer_core.text import TOOL_PARSERS

    return TOOL_PARSERS


@hookimpl
def reasoning_parsers() -> Mapping[str, ReasoningParserFactory]:
    """The one form that these families share."""
    from pegainfer_core.text import REASONING_PARSERS

    return REASONING_PARSERS
