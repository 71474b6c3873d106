"""Engine parts: ledger, driver loop, the two transports, and what schedulers are made of."""

from importlib import import_module
from typing import TYPE_CHECKING

from pegainfer_core.engine.adapters import AdapterTable, NoAdapters
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
from pegainfer_core.engine.info import engine_info
from pegainfer_core.engine.json_log import JsonLogFormatter
from pegainfer_core.engine.kv_offload import KvOffload, NoOffload
from pegainfer_core.engine.late_match import match_late, plan_prompts
from pegainfer_core.engine.ledger import Ledger, LedgerError
from pegainfer_core.engine.local import BuiltEngine, LocalEngine
from pegainfer_core.engine.offload_opening import open_offload
from pegainfer_core.engine.pipeline import CompletedStep, StepPipeline
from pegainfer_core.engine.plan_limits import (
    decoder_plan,
    default_num_pages,
    fitted_plan,
    widened_plan,
)
from pegainfer_core.engine.process import ProcessEngine
from pegainfer_core.engine.queue import WaitingQueue
from pegainfer_core.engine.roster import Roster
from pegainfer_core.engine.running import RunningSet, decode_rows, make_room
from pegainfer_core.engine.scheduler import OffloadingScheduler, Scheduler
from pegainfer_core.engine.sequence import Sequence
from pegainfer_core.engine.slots import SlotPool
from pegainfer_core.engine.step import (
    DoneStep,
    LaunchedStep,
    ModelRunner,
    Row,
    RowResult,
    StateRestore,
    StateSave,
    StepPlan,
)
from pegainfer_core.engine.step_limits import PROMPT_TILE_ROWS, max_logit_rows, max_step_tokens
from pegainfer_core.engine.step_time import StepTimeModel
from pegainfer_core.engine.step_work import StepWork
from pegainfer_core.engine.stopping import deliver, finish_reason, hand_over
from pegainfer_core.engine.validation import check_request, clamp_max_tokens

if TYPE_CHECKING:
    from pegainfer_core.engine.client import EngineClient
    from pegainfer_core.engine.decoder_runner import DecoderModel, DecoderRunner, lay_out
    from pegainfer_core.engine.grammar_opening import GrammarDesk, open_grammars
    from pegainfer_core.engine.model_opening import (
        OpenParameters,
        launch_local,
        open_pages,
        open_parameters,
    )
    from pegainfer_core.engine.request_stream import RequestStream

__all__ = [
    "PROMPT_TILE_ROWS",
    "AdapterTable",
    "Admission",
    "BuiltEngine",
    "CompletedStep",
    "DecoderModel",
    "DecoderRunner",
    "DoneStep",
    "EngineClient",
    "FixedPrefillBudget",
    "GrammarDesk",
    "IdleMemory",
    "JsonLogFormatter",
    "KvOffload",
    "LaunchedStep",
    "Ledger",
    "LedgerError",
    "LocalEngine",
    "ModelRunner",
    "NoAdapters",
    "NoOffload",
    "OffloadingScheduler",
    "OpenParameters",
    "PrefillBudget",
    "ProcessEngine",
    "RequestStream",
    "Roster",
    "Row",
    "RowResult",
    "RunningSet",
    "Scheduler",
    "Sequence",
    "SlotPool",
    "StateRestore",
    "StateSave",
    "StepPipeline",
    "StepPlan",
    "StepTimeModel",
    "StepWork",
    "TargetedPrefillBudget",
    "WaitingQueue",
    "check_request",
    "clamp_max_tokens",
    "decode_rows",
    "decoder_plan",
    "default_num_pages",
    "deliver",
    "engine_info",
    "finish_reason",
    "fitted_plan",
    "hand_over",
    "launch_local",
    "lay_out",
    "make_prefill_budget",
    "make_room",
    "match_late",
    "max_logit_rows",
    "max_step_tokens",
    "open_grammars",
    "open_offload",
    "open_pages",
    "open_parameters",
    "plan_chunks",
    "plan_prompts",
    "prefill_budget",
    "share_prefill_budget",
    "take_metrics",
    "widened_plan",
]

#: The client brings asyncio along, which a worker process does without: 8 MB. The runner brings
#: NumPy, which planning does without.
_LAZY = {
    "DecoderModel": "decoder_runner",
    "DecoderRunner": "decoder_runner",
    "EngineClient": "client",
    "GrammarDesk": "grammar_opening",
    "OpenParameters": "model_opening",
    "RequestStream": "request_stream",
    "launch_local": "model_opening",
    "lay_out": "decoder_runner",
    "open_grammars": "grammar_opening",
    "open_pages": "model_opening",
    "open_parameters": "model_opening",
}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
