"""Engine parts: ledger, driver loop, the two transports, and what schedulers are made of."""

from importlib import import_module
from typing import TYPE_CHECKING

from pegainfer_core.engine.admission import Admission
from pegainfer_core.engine.budget import (
    FixedPrefillBudget,
    PrefillBudget,
    TargetedPrefillBudget,
    make_prefill_budget,
)
from pegainfer_core.engine.chunking import plan_chunks, prefill_budget, share_prefill_budget
from pegainfer_core.engine.gauges import take_metrics
from pegainfer_core.engine.idle_memory import IdleMemory
from pegainfer_core.engine.kv_offload import KvOffload, NoOffload
from pegainfer_core.engine.ledger import Ledger, LedgerError
from pegainfer_core.engine.local import BuiltEngine, LocalEngine
from pegainfer_core.engine.offload_opening import open_offload
from pegainfer_core.engine.pipeline import CompletedStep, StepPipeline
from pegainfer_core.engine.process import ProcessEngine
from pegainfer_core.engine.queue import WaitingQueue
from pegainfer_core.engine.running import RunningSet, decode_rows, make_room
from pegainfer_core.engine.scheduler import OffloadingScheduler, Scheduler
from pegainfer_core.engine.sequence import Sequence
from pegainfer_core.engine.slots import SlotPool
from pegainfer_core.engine.step import DoneStep, LaunchedStep, ModelRunner, Row, RowResult, StepPlan
from pegainfer_core.engine.step_time import StepTimeModel
from pegainfer_core.engine.step_work import StepWork
from pegainfer_core.engine.stopping import deliver, finish_reason
from pegainfer_core.engine.validation import check_request, clamp_max_tokens

if TYPE_CHECKING:
    from pegainfer_core.engine.client import EngineClient, RequestStream

__all__ = [
    "Admission",
    "BuiltEngine",
    "CompletedStep",
    "DoneStep",
    "EngineClient",
    "FixedPrefillBudget",
    "IdleMemory",
    "KvOffload",
    "LaunchedStep",
    "Ledger",
    "LedgerError",
    "LocalEngine",
    "ModelRunner",
    "NoOffload",
    "OffloadingScheduler",
    "PrefillBudget",
    "ProcessEngine",
    "RequestStream",
    "Row",
    "RowResult",
    "RunningSet",
    "Scheduler",
    "Sequence",
    "SlotPool",
    "StepPipeline",
    "StepPlan",
    "StepTimeModel",
    "StepWork",
    "TargetedPrefillBudget",
    "WaitingQueue",
    "check_request",
    "clamp_max_tokens",
    "decode_rows",
    "deliver",
    "finish_reason",
    "make_prefill_budget",
    "make_room",
    "open_offload",
    "plan_chunks",
    "prefill_budget",
    "share_prefill_budget",
    "take_metrics",
]

#: Brings asyncio along, which a worker process does without: 8 MB.
_LAZY = {"EngineClient": "client", "RequestStream": "client"}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
