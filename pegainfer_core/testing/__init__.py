"""For tests: the conformance kit for plugin authors, a byte tokenizer, and tiny checkpoints.

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
        LifecycleConformance,
        LimitsConformance,
        RejectsConformance,
        Requirements,
        SamplingConformance,
        SchedulingConformance,
        StaticConformance,
        TransportConformance,
    )
    from pegainfer_core.testing.tiny import (
        TableRow,
        edit_config,
        row,
        script,
        table_model,
        tiny_qwen3,
    )

__all__ = [
    "BOS_ID",
    "CONTENT_ID",
    "END_THINK_ID",
    "EOS_ID",
    "FOREIGN_CONFIGS",
    "THINK_ID",
    "TURN_ID",
    "AbortConformance",
    "ContractConformance",
    "FamilyConformance",
    "LifecycleConformance",
    "LimitsConformance",
    "RejectsConformance",
    "Requirements",
    "SamplingConformance",
    "SchedulingConformance",
    "StaticConformance",
    "TableRow",
    "TransportConformance",
    "byte_tokenizer",
    "edit_config",
    "row",
    "script",
    "table_model",
    "tiny_qwen3",
]

_TINY = ("TableRow", "edit_config", "row", "script", "table_model", "tiny_qwen3")


def __getattr__(name: str) -> object:
    if name in __all__:
        package = "tiny" if name in _TINY else "conformance"
        return getattr(import_module(f"{__name__}.{package}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
