"""The plugin host: discovery, hooks, the model family protocol, and the road to a launch.

Everything in `__all__` is supported for plugins; the modules behind it are not. What is needed only
once a checkpoint is at hand resolves lazily, which keeps discovery within its milliseconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from pegainfer_core.plugin.api import HOOK_API, hookimpl
from pegainfer_core.plugin.command import CommandRegistry
from pegainfer_core.plugin.extension import KvTierFactory, OfferedTier, Offers
from pegainfer_core.plugin.family import (
    ChatProfile,
    Claim,
    ConfigDict,
    DummyWeights,
    FamilyOptions,
    ModelFamily,
    Rejection,
)
from pegainfer_core.plugin.fault import CommandFault, PluginFault, UserFault
from pegainfer_core.plugin.hook_calls import HookCalls
from pegainfer_core.plugin.host import PluginHost
from pegainfer_core.plugin.offered_family import OfferedFamily
from pegainfer_core.plugin.plugin_record import PluginRecord, PluginState
from pegainfer_core.plugin.recognised_family import RecognisedFamily
from pegainfer_core.plugin.request_record import RequestRecord
from pegainfer_core.plugin.settings import HostSettings
from pegainfer_core.plugin.shared_options import DECODER_OPTIONS, LORA_OPTIONS

if TYPE_CHECKING:
    from pegainfer_core.plugin.launch import (
        ChosenModel,
        PreparedLaunch,
        choose_model,
        plan_launch,
        prepare_launch,
    )
    from pegainfer_core.plugin.select import (
        Decision,
        SelectionError,
        Verdict,
        decide,
        select_family,
    )

__all__ = [
    "DECODER_OPTIONS",
    "HOOK_API",
    "LORA_OPTIONS",
    "ChatProfile",
    "ChosenModel",
    "Claim",
    "CommandFault",
    "CommandRegistry",
    "ConfigDict",
    "Decision",
    "DummyWeights",
    "FamilyOptions",
    "HookCalls",
    "HostSettings",
    "KvTierFactory",
    "ModelFamily",
    "OfferedFamily",
    "OfferedTier",
    "Offers",
    "PluginFault",
    "PluginHost",
    "PluginRecord",
    "PluginState",
    "PreparedLaunch",
    "RecognisedFamily",
    "Rejection",
    "RequestRecord",
    "SelectionError",
    "UserFault",
    "Verdict",
    "choose_model",
    "decide",
    "hookimpl",
    "plan_launch",
    "prepare_launch",
    "select_family",
]

_LAZY = {
    "ChosenModel": "launch",
    "PreparedLaunch": "launch",
    "choose_model": "launch",
    "plan_launch": "launch",
    "prepare_launch": "launch",
    "Decision": "select",
    "SelectionError": "select",
    "Verdict": "select",
    "decide": "select",
    "select_family": "select",
}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
