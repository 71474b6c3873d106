"""An engine without a model: the next token is a function of the ids so far.

A real driver and ledger run it, so that what the server sees is what any engine shows.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field

from pegainfer_core.contract import (
    EngineCapabilities,
    EngineInfo,
    EngineMetrics,
    FinishReason,
    GenerateRequest,
    ServePlan,
    TokenLogprobs,
)
from pegainfer_core.engine import (
    BuiltEngine,
    Ledger,
    LocalEngine,
    check_request,
    clamp_max_tokens,
)

PAGE_TOKENS = 16
NUM_PAGES = 4096


def chain(*steps: int | str) -> dict[int, int]:
    """A script: each step (an id or a byte) leads to the next."""
    ids = [ord(step) if isinstance(step, str) else step for step in steps]
    return dict(itertools.pairwise(ids))


def fake_logprobs(token_id: int, num_top: int, vocab_size: int) -> TokenLogprobs:
    """Chosen token first, then its neighbours, each less likely by 1."""
    top = [(token_id + offset) % vocab_size for offset in range(num_top)]
    return TokenLogprobs(-0.25, 1, top, [-0.25 - offset for offset in range(num_top)])


@dataclass
class Script:
    """What the engine does; tests may change it while it runs.

    Attributes:
        table: Last id to next id; `default` where it has none.
        default: Usually the end token, so that unknown prompts end at once.
        step_s: Time a step takes.
        tokens_per_step: Tokens of each request in one step.
        hold: While set, steps pass without doing anything.
        hold_prefill: While set, nothing that waits is admitted.
        fault: Raised inside the next step.
        max_num_seqs: Most requests in one step.
        cached_tokens: What each request is told of the prefix cache.
        requests: Every request that was submitted.
        structured: Whether forms of answers are accepted; nobody holds the script to them.
    """

    table: dict[int, int] = field(default_factory=dict)
    default: int = 256
    step_s: float = 0.0
    tokens_per_step: int = 1
    hold: bool = False
    hold_prefill: bool = False
    fault: Exception | None = None
    max_num_seqs: int = 256
    cached_tokens: int = 0
    requests: list[GenerateRequest] = field(default_factory=list)
    resets: int = 0
    structured: bool = False

    def next_token(self, ids: list[int]) -> int:
        return self.table.get(ids[-1], self.default)


@dataclass
class _Running:
    request: GenerateRequest
    limit: int
    ids: list[int]
    made: int = 0


class ScriptedScheduler:
    """Implements `Scheduler`."""

    def __init__(self, script: Script, plan: ServePlan) -> None:
        self.script = script
        self.plan = plan
        self.waiting: dict[int, GenerateRequest] = {}
        self.running: dict[int, _Running] = {}

    def submit(self, request: GenerateRequest, ledger: Ledger) -> None:
        self.script.requests.append(request)
        reason = check_request(request, self.plan)
        if reason is None:
            self.waiting[request.request_id] = request
        else:
            ledger.reject(request.request_id, reason)

    def abort(self, request_id: int, ledger: Ledger) -> None:
        self.waiting.pop(request_id, None)
        self.running.pop(request_id, None)
        ledger.abort(request_id)

    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    def step(self, ledger: Ledger) -> None:
        script = self.script
        if script.fault is not None:
            raise script.fault
        if script.hold:
            time.sleep(0.002)
            return
        if script.step_s:
            time.sleep(script.step_s)
        self._admit(ledger)
        if not self.running:
            time.sleep(0.002)
        for running in list(self.running.values()):
            self._advance(running, ledger)

    def reset_prefix_cache(self, *, device_only: bool = False) -> None:
        self.script.resets += 1

    def metrics(self) -> EngineMetrics:
        used = sum(-(-len(running.ids) // PAGE_TOKENS) for running in self.running.values())
        return EngineMetrics(
            num_running=len(self.running),
            num_waiting=len(self.waiting),
            kv_total_pages=NUM_PAGES,
            kv_used_pages=used,
        )

    def close(self) -> None:
        self.running.clear()

    def _admit(self, ledger: Ledger) -> None:
        while self.waiting and len(self.running) < self.script.max_num_seqs:
            if self.script.hold_prefill:
                return
            request_id = next(iter(self.waiting))
            request = self.waiting.pop(request_id)
            limit = clamp_max_tokens(request, self.plan.max_model_len)
            self.running[request_id] = _Running(request, limit, list(request.prompt_token_ids))
            ledger.schedule(request_id, self.script.cached_tokens)
            if request.params.prompt_logprobs is not None:
                ledger.push_prompt(request_id, self._prompt_logprobs(request))

    def _prompt_logprobs(self, request: GenerateRequest) -> list[TokenLogprobs | None]:
        num_top = request.params.prompt_logprobs or 0
        return [
            fake_logprobs(token_id, num_top, self.plan.vocab_size) if index else None
            for index, token_id in enumerate(request.prompt_token_ids)
        ]

    def _advance(self, running: _Running, ledger: Ledger) -> None:
        request, params = running.request, running.request.params
        new: list[int] = []
        ending: tuple[FinishReason, int | None] | None = None
        while len(new) < self.script.tokens_per_step and ending is None:
            if running.made >= running.limit:
                ending = (FinishReason.LENGTH, None)
                break
            token_id = self.script.next_token(running.ids)
            running.ids.append(token_id)
            running.made += 1
            if running.made > params.min_tokens and self._stops(token_id, request):
                ending = (FinishReason.STOP, token_id)
                break
            new.append(token_id)
            if running.made >= running.limit:
                ending = (FinishReason.LENGTH, None)
        if new:
            ledger.push(request.request_id, new, self._logprobs(new, request))
        if ending is not None:
            del self.running[request.request_id]
            reason, stop_id = ending
            extra = self._logprobs([stop_id], request) if stop_id is not None else None
            ledger.finish(request.request_id, reason, stop_id, extra[0] if extra else None)

    def _stops(self, token_id: int, request: GenerateRequest) -> bool:
        ends = [] if request.params.ignore_eos else request.eos_token_ids
        return token_id in ends or token_id in request.params.stop_token_ids

    def _logprobs(
        self, token_ids: list[int], request: GenerateRequest
    ) -> list[TokenLogprobs] | None:
        num_top = request.params.logprobs
        if num_top is None:
            return None
        return [fake_logprobs(token_id, num_top, self.plan.vocab_size) for token_id in token_ids]


def scripted_engine(
    script: Script, *, max_model_len: int = 4096, vocab_size: int = 1024
) -> LocalEngine:
    """Start an engine that follows a script."""
    plan = ServePlan(
        max_model_len=max_model_len,
        vocab_size=vocab_size,
        backend="script",
        page_tokens=PAGE_TOKENS,
        num_pages=NUM_PAGES,
        max_num_seqs=script.max_num_seqs,
        max_prefill_tokens=max_model_len,
        capabilities=EngineCapabilities(structured=script.structured),
    )
    info = EngineInfo(
        family="script",
        backend="script",
        vocab_size=vocab_size,
        max_model_len=max_model_len,
        page_tokens=PAGE_TOKENS,
        num_pages=NUM_PAGES,
        max_num_seqs=script.max_num_seqs,
    )
    return LocalEngine(lambda: BuiltEngine(ScriptedScheduler(script, plan), info))
