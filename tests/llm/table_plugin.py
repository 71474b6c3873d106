"""A family for tests: next-token logits are a table over the last token, sampling is core's own.

config.json holds the table: {"model_type": "table", "table": {"64": {"65": 2.0}}, "rest": -40}.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from msgspec import Meta

from pegainfer_core.contract import (
    EngineInfo,
    EngineMetrics,
    FinishReason,
    InvalidParam,
    ServePlan,
)
from pegainfer_core.engine import BuiltEngine, LocalEngine, check_request, clamp_max_tokens
from pegainfer_core.engine.sequence import Sequence
from pegainfer_core.plugin import ChatProfile, Claim, FamilyOptions, Rejection, hookimpl
from pegainfer_core.sampling import Sampler, row_logprobs
from pegainfer_core.weights import load_config

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.contract import EngineHandle, GenerateRequest, LaunchContext
    from pegainfer_core.engine import Ledger
    from pegainfer_core.plugin import ConfigDict, ModelFamily, RequestRecord

__pegainfer_api__ = "1.0"
VOCAB = 1024

records: list[RequestRecord] = []
life: list[str] = []


class TableOptions(FamilyOptions):
    refuse_token: Annotated[int | None, Meta(description="prompts with it are refused late")] = None
    die_token: Annotated[int | None, Meta(description="prompts with it kill the engine")] = None
    fail_token: Annotated[int | None, Meta(description="prompts with it fail when run")] = None


class TableFamily:
    id = "table"
    display_name = "Table"
    options = TableOptions
    shared_options = frozenset({"max_model_len", "max_num_seqs", "seed"})
    chat = ChatProfile(template_defaults={"greeting": "hi"})

    def probe(self, config: ConfigDict, model_dir: Path) -> Claim | Rejection:
        return Claim() if config.get("model_type") == "table" else Rejection("no table")

    def plan(self, context: LaunchContext) -> ServePlan:
        return ServePlan(
            max_model_len=context.options.max_model_len or 512,
            vocab_size=VOCAB,
            backend="table",
            page_tokens=16,
            num_pages=0,
            max_num_seqs=context.options.max_num_seqs,
            max_prefill_tokens=512,
        )

    def launch(self, context: LaunchContext, plan: ServePlan) -> EngineHandle:
        info = EngineInfo(
            family="table",
            backend="table",
            vocab_size=VOCAB,
            max_model_len=plan.max_model_len,
            page_tokens=16,
            num_pages=0,
            max_num_seqs=plan.max_num_seqs,
        )
        config = load_config(Path(context.model_dir))
        return LocalEngine(lambda: BuiltEngine(TableScheduler(config, context, plan), info))


class TableScheduler:
    def __init__(self, config: ConfigDict, context: LaunchContext, plan: ServePlan) -> None:
        self.plan = plan
        self.options = context.family_options
        self.rows: dict[int, NDArray[np.float32]] = {}
        self.rest = np.full(VOCAB, config.get("rest", -40.0), np.float32)
        for last, entries in config["table"].items():
            row = self.rest.copy()
            for token_id, logit in entries.items():
                row[int(token_id)] = logit
            self.rows[int(last)] = row
        self.sampler = Sampler(VOCAB, context.options.seed)
        self.waiting: list[GenerateRequest] = []
        self.running: dict[int, Sequence] = {}

    def submit(self, request: GenerateRequest, ledger: Ledger) -> None:
        reason = check_request(request, self.plan)
        if reason is None and self.options.get("refuse_token") in request.prompt_token_ids:
            reason = InvalidParam(field="prompt", problem="holds the refused token")
        if reason is not None:
            ledger.reject(request.request_id, reason)
        else:
            self.waiting.append(request)

    def abort(self, request_id: int, ledger: Ledger) -> None:
        self.waiting = [r for r in self.waiting if r.request_id != request_id]
        self._drop(request_id)
        life.append(f"abort {request_id}")
        ledger.abort(request_id)

    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    def step(self, ledger: Ledger) -> None:
        while self.waiting and len(self.running) < self.plan.max_num_seqs:
            self._admit(self.waiting.pop(0), ledger)
        sequences = list(self.running.values())
        logits = np.stack([self._logits(s.token_ids[-1]) for s in sequences] or [self.rest])
        choices = self.sampler.sample(logits[: len(sequences)], sequences)
        for sequence, (token_id, logprobs) in zip(sequences, choices, strict=True):
            self._append(sequence, token_id, logprobs, ledger)

    def reset_prefix_cache(self) -> None:
        pass

    def metrics(self) -> EngineMetrics:
        return EngineMetrics(num_running=len(self.running), num_waiting=len(self.waiting))

    def close(self) -> None:
        life.append("closed")

    def _logits(self, last: int) -> NDArray[np.float32]:
        return self.rows.get(last, self.rest)

    def _admit(self, request: GenerateRequest, ledger: Ledger) -> None:
        prompt = request.prompt_token_ids
        if self.options.get("die_token") in prompt:
            raise RuntimeError("the die token was run")
        ledger.schedule(request.request_id, len(prompt) // 16 * 16)
        if self.options.get("fail_token") in prompt:
            ledger.fail(request.request_id, "the fail token was run")
            return
        if request.params.prompt_logprobs is not None:
            tile = np.stack([self._logits(last) for last in prompt])
            count = request.params.prompt_logprobs
            ledger.push_prompt(
                request.request_id, [None, *row_logprobs(tile[:-1], prompt[1:], count)]
            )
        limit = clamp_max_tokens(request, self.plan.max_model_len)
        if limit == 0:
            ledger.finish(request.request_id, FinishReason.LENGTH)
        else:
            self.running[request.request_id] = Sequence(request, limit)

    def _append(self, sequence: Sequence, token_id: int, logprobs: object, ledger: Ledger) -> None:
        request = sequence.request
        sequence.token_ids.append(token_id)
        ends = set(request.params.stop_token_ids)
        if not request.params.ignore_eos:
            ends |= set(request.eos_token_ids)
        if token_id in ends:
            self._drop(request.request_id)
            ledger.finish(request.request_id, FinishReason.STOP, token_id, logprobs)
            return
        ledger.push(request.request_id, [token_id], None if logprobs is None else [logprobs])
        if sequence.num_generated == sequence.max_tokens:
            self._drop(request.request_id)
            ledger.finish(request.request_id, FinishReason.LENGTH)

    def _drop(self, request_id: int) -> None:
        self.running.pop(request_id, None)
        self.sampler.forget(request_id)


@hookimpl
def model_families() -> list[ModelFamily]:
    return [TableFamily()]


@hookimpl
def request_finished(record: RequestRecord) -> None:
    records.append(record)


@hookimpl
def engine_ready(engine: EngineHandle, family: ModelFamily, plan: ServePlan) -> None:
    life.append(f"ready {family.id}")


@hookimpl
def engine_stopping(engine: EngineHandle) -> None:
    life.append("stopping")
