"""Engine parts: ledger, driver loop, the two transports, and what schedulers are made of."""

from pegainfer_core.engine.client import EngineClient, RequestStream
from pegainfer_core.engine.ledger import Ledger, LedgerError
from pegainfer_core.engine.local import BuiltEngine, LocalEngine
from pegainfer_core.engine.process import ProcessEngine
from pegainfer_core.engine.scheduler import Scheduler
from pegainfer_core.engine.sequence import Sequence
from pegainfer_core.engine.step import ModelRunner, Row, RowResult, StepPlan
from pegainfer_core.engine.validation import check_request, clamp_max_tokens

__all__ = [
    "BuiltEngine",
    "EngineClient",
    "Ledger",
    "LedgerError",
    "LocalEngine",
    "ModelRunner",
    "ProcessEngine",
    "RequestStream",
    "Row",
    "RowResult",
    "Scheduler",
    "Sequence",
    "StepPlan",
    "check_request",
    "clamp_max_tokens",
]
