"""For tests: a conformance kit for plugin authors, a byte tokenizer, tiny models, a simulator.

Everything in `__all__` is supported. The kit resolves lazily, because it needs pytest and the rest
does not.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from pegainfer_core.testing.byte_tokenizer import (
    BOS_ID,
    CONTENT_ID,
    END_THINK_ID,
    EOS_ID,
    THINK_ID,
    TURN_ID,
    byte_tokenizer,
)

if TYPE_CHECKING:
    from pegainfer_core.testing.conformance import (
        FOREIGN_CONFIGS,
        AbortConformance,
        ContractConformance,
        FamilyConformance,
        KvTierConformance,
        LifecycleConformance,
        LimitsConformance,
        RejectsConformance,
        Requirements,
        SamplingConformance,
        SchedulingConformance,
        StaticConformance,
        TransportConformance,
    )
    from pegainfer_core.testing.simulator import (
        H200_FRONT_END,
        H200_HOST_TIER,
        H200_PLAN,
        H200_QWEN3_4B,
        Arrival,
        ClosedTrace,
        ConversationTrace,
        CostModel,
        FrontEndCost,
        HostTierCost,
        OpenTrace,
        Report,
        SchedulerFactory,
        SimulatedHostTier,
        SimulatedRunner,
        Simulation,
        SimulationError,
        Spread,
        Trace,
    )
    from pegainfer_core.testing.tiny import (
        TableRow,
        edit_config,
        row,
        script,
        table_model,
        tiny_qwen3,
        tiny_qwen35,
    )

__all__ = [
    "BOS_ID",
    "CONTENT_ID",
    "END_THINK_ID",
    "EOS_ID",
    "FOREIGN_CONFIGS",
    "H200_FRONT_END",
    "H200_HOST_TIER",
    "H200_PLAN",
    "H200_QWEN3_4B",
    "THINK_ID",
    "TURN_ID",
    "AbortConformance",
    "Arrival",
    "ClosedTrace",
    "ContractConformance",
    "ConversationTrace",
    "CostModel",
    "FamilyConformance",
    "FrontEndCost",
    "HostTierCost",
    "KvTierConformance",
    "LifecycleConformance",
    "LimitsConformance",
    "OpenTrace",
    "RejectsConformance",
    "Report",
    "Requirements",
    "SamplingConformance",
    "SchedulerFactory",
    "SchedulingConformance",
    "SimulatedHostTier",
    "SimulatedRunner",
    "Simulation",
    "SimulationError",
    "Spread",
    "StaticConformance",
    "TableRow",
    "Trace",
    "TransportConformance",
    "byte_tokenizer",
    "edit_config",
    "row",
    "script",
    "table_model",
    "tiny_qwen3",
    "tiny_qwen35",
]

_SIMULATOR = (
    "H200_FRONT_END",
    "H200_HOST_TIER",
    "H200_PLAN",
    "H200_QWEN3_4B",
    "Arrival",
    "ClosedTrace",
    "ConversationTrace",
    "CostModel",
    "FrontEndCost",
    "HostTierCost",
    "OpenTrace",
    "Report",
    "SchedulerFactory",
    "SimulatedHostTier",
    "SimulatedRunner",
    "Simulation",
    "SimulationError",
    "Spread",
    "Trace",
)
_TINY = ("TableRow", "edit_config", "row", "script", "table_model", "tiny_qwen3", "tiny_qwen35")


def __getattr__(name: str) -> object:
    if name in __all__:
        package = "conformance"
        if name in _TINY:
            package = "tiny"
        elif name in _SIMULATOR:
            package = "simulator"
        return getattr(import_module(f"{__name__}.{package}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
