"""Drives a scheduler on the paged model and holds every answer against the same request alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pegainfer_qwen3.scheduler import Qwen3Scheduler

from pegainfer_core.contract import (
    TERMINAL_EVENTS,
    EngineMetrics,
    Finished,
    FinishReason,
    GenerateRequest,
    PromptTokens,
    Rejected,
    SamplingParams,
    Scheduled,
    ServePlan,
    TokenEvent,
    TokenLogprobs,
    Tokens,
)
from pegainfer_core.engine import Ledger, Sequence
from pegainfer_core.engine.admission import HEADROOM_TOKENS
from pegainfer_core.kv import Block, BlockHasher, KvManager
from tests.scheduler.paged_model import (
    EOS,
    VOCAB_SIZE,
    PagedModel,
    cell_after,
    cells_of,
    choose,
    score,
)

PAGE_TOKENS = 4


@dataclass
class Answer:
    """What a client saw of one request."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    cached_tokens: int | None = None
    terminal: TokenEvent | None = None

    def take(self, event: TokenEvent) -> None:
        assert self.terminal is None, "an event after the terminal"
        if isinstance(event, Scheduled):
            assert self.cached_tokens is None, "scheduled twice"
            self.cached_tokens = event.cached_tokens
        elif isinstance(event, Tokens):
            assert self.cached_tokens is not None
            self.token_ids += event.token_ids
            self.logprobs += event.logprobs or []
        elif isinstance(event, PromptTokens):
            assert self.prompt_logprobs is None and not self.token_ids
            self.prompt_logprobs = event.logprobs
        if isinstance(event, TERMINAL_EVENTS):
            self.terminal = event

    @property
    def reason(self) -> FinishReason:
        assert isinstance(self.terminal, Finished)
        return self.terminal.reason


def alone(request: GenerateRequest, max_tokens: int) -> Answer:
    """The right answer, from the definition of the model, with no scheduler at all."""
    params = request.params
    prompt = request.prompt_token_ids
    answer = Answer()
    cells = cells_of(prompt)
    if params.prompt_logprobs is not None:
        answer.prompt_logprobs = [None] + [
            score(cells[:p], prompt[p]) for p in range(1, len(prompt))
        ]
    ends = set(params.stop_token_ids) | (set() if params.ignore_eos else set(request.eos_token_ids))
    reason, stop = FinishReason.LENGTH, None
    while len(answer.token_ids) < max_tokens:
        result = choose(cells, answer.token_ids, request)
        assert result.token_id is not None
        if result.token_id in ends and len(answer.token_ids) >= params.min_tokens:
            reason, stop = FinishReason.STOP, result
            break
        answer.token_ids.append(result.token_id)
        if result.logprobs is not None:
            answer.logprobs.append(result.logprobs)
        cells.append(cell_after(cells[-1], result.token_id, len(cells)))
    answer.terminal = Finished(
        request.request_id,
        reason,
        len(prompt),
        len(answer.token_ids) + (stop is not None),
        stop.token_id if stop else None,
        stop.logprobs if stop else None,
    )
    return answer


class Harness:
    """One scheduler with its pool, ledger and fake model, checked after every call.

    Attributes:
        ahead: Whether the model's results are read only after the launch of the next step.
    """

    ahead = False

    def __init__(
        self,
        *,
        num_usable_pages: int = 24,
        max_num_seqs: int = 4,
        max_prefill_tokens: int = 8,
        max_model_len: int = 256,
        prefix_cache: bool = True,
        reserve: Literal["on-demand", "worst-case"] = "on-demand",
        hasher: BlockHasher | None = None,
        headroom_tokens: int = HEADROOM_TOKENS,
        itl_target_s: float | None = None,
    ) -> None:
        num_pages = num_usable_pages + 1
        self.kv = KvManager(num_pages, PAGE_TOKENS, prefix_cache=prefix_cache, hasher=hasher)
        self.plan = ServePlan(
            max_model_len=max_model_len,
            vocab_size=VOCAB_SIZE,
            backend="numpy",
            page_tokens=PAGE_TOKENS,
            num_pages=num_pages,
            max_num_seqs=max_num_seqs,
            max_prefill_tokens=max_prefill_tokens,
            itl_target_s=itl_target_s,
        )
        self.model = PagedModel(PAGE_TOKENS, max_prefill_tokens, num_pages, ahead=self.ahead)
        self.scheduler = Qwen3Scheduler(self.model, self.kv, self.plan, reserve)
        # Real headroom dwarfs these pools: with less of it, preemption is common.
        self.scheduler._admission._headroom_tokens = headroom_tokens
        self.ledger = Ledger()
        self.requests: dict[int, GenerateRequest] = {}
        self.answers: dict[int, Answer] = {}

    def submit(
        self,
        prompt: list[int],
        *,
        params: SamplingParams | None = None,
        priority: int = 0,
        cache_salt: str = "",
    ) -> int:
        request_id = len(self.requests) + 1
        request = GenerateRequest(
            request_id=request_id,
            prompt_token_ids=prompt,
            params=params or SamplingParams(max_tokens=8),
            eos_token_ids=[EOS],
            priority=priority,
            cache_salt=cache_salt,
        )
        self.requests[request_id] = request
        self.answers[request_id] = Answer()
        self.ledger.open(request)
        self.scheduler.submit(request, self.ledger)
        self._collect()
        return request_id

    def step(self) -> None:
        self.scheduler.step(self.ledger)
        self._collect()

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    @property
    def lag(self) -> int:
        """Steps between the launch of a step and the one that reads its results."""
        return int(self.ahead)

    def abort(self, request_id: int) -> None:
        self.scheduler.abort(request_id, self.ledger)
        self._collect()

    def drain(self, max_steps: int = 5000) -> None:
        for _ in range(max_steps):
            if not self.scheduler.has_work():
                break
            self.step()
        assert not self.scheduler.has_work(), "requests stalled"
        metrics = self.metrics
        assert (metrics.num_running, metrics.num_waiting, metrics.kv_used_pages) == (0, 0, 0)
        assert self.kv.num_available == metrics.kv_total_pages
        assert len(self.ledger) == 0

    def run(self, prompt: list[int], **fields: object) -> Answer:
        """Submit one request and run until all is done; the answer is checked."""
        request_id = self.submit(prompt, **fields)  # type: ignore[arg-type]
        self.drain()
        self.expect_right(request_id)
        return self.answers[request_id]

    def expect_right(self, request_id: int) -> None:
        """The client saw exactly what the request gives alone."""
        seen = self.answers[request_id]
        request = self.requests[request_id]
        if isinstance(seen.terminal, Rejected):
            return
        right = alone(request, self.max_tokens(request))
        if isinstance(seen.terminal, Finished) and seen.terminal.reason is FinishReason.ABORT:
            assert seen.token_ids == right.token_ids[: len(seen.token_ids)]
            assert seen.terminal.completion_tokens == len(seen.token_ids)
            return
        right.cached_tokens = seen.cached_tokens
        assert seen == right

    def max_tokens(self, request: GenerateRequest) -> int:
        num_prompt = len(request.prompt_token_ids)
        if request.params.max_tokens is not None:
            return request.params.max_tokens
        pool_tokens = self.metrics.kv_total_pages * PAGE_TOKENS
        return min(self.plan.max_model_len - num_prompt, pool_tokens - num_prompt + 1)

    @property
    def metrics(self) -> EngineMetrics:
        return self.scheduler.metrics()

    @property
    def running(self) -> list[Sequence]:
        return list(self.scheduler._requests.running)

    def _collect(self) -> None:
        frame = self.ledger.take_frame()
        for event in frame.events if frame else []:
            self.answers[event.request_id].take(event)
        self.check_pages()

    def extra_users(self) -> list[int]:
        """A page for each user that is no running request."""
        return []

    def check_pages(self) -> None:
        """Every page is accounted for, whatever happened before."""
        pool, cache = self.kv.pool, self.kv._cache
        users = [0] * (pool.num_total + 1)
        for sequence in self.running:
            for page_id in sequence.page_ids:
                users[page_id] += 1
        for page_id in self.extra_users():
            users[page_id] += 1
        assert users == pool._num_users
        used = {page_id for page_id, count in enumerate(users) if count}
        free, cached = set(pool._free), set(pool._cached)
        assert len(free) == len(pool._free)
        assert not (free & cached or free & used or cached & used)
        assert free | cached | used == set(range(1, pool.num_total + 1))
        assert (len(free), len(cached), len(used)) == (
            pool.num_free,
            pool.num_cached,
            pool.num_used,
        )
        promised = [max(seq.num_reserved_pages - len(seq.page_ids), 0) for seq in self.running]
        assert self.kv.num_available == len(free) + len(cached) - sum(promised) >= 0
        assert len(self.running) + len(self.scheduler._requests.slots) == self.plan.max_num_seqs
        if cache is None:
            assert not cached
            return
        published = {page_id for page_id, block in enumerate(cache._by_page) if block}
        assert cached <= published <= cached | used
        self._check_blocks(list(cache._by_hash.values()), cached)

    def _check_blocks(self, blocks: list[Block], cached: set[int]) -> None:
        alive = {id(block) for block in blocks}
        age = {page_id: place for place, page_id in enumerate(self.kv.pool._cached)}
        for block in blocks:
            assert block.page_ids
            idle = [page_id for page_id in block.page_ids if page_id in cached]
            assert not idle or len(block.page_ids) == 1, "an idle copy beside another"
            if isinstance(block.parent, Block):
                assert id(block.parent) in alive, "a block outlived its parent"
                parent_age = age.get(block.parent.page_ids[0])
                if parent_age is not None:
                    assert idle and age[idle[0]] < parent_age, "a parent would go before its child"
