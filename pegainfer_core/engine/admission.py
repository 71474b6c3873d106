"""Whether a request can be served at all, and whether it can start now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pegainfer_core.contract import KvBudget
from pegainfer_core.engine.sequence import Sequence
from pegainfer_core.engine.validation import check_request, clamp_max_tokens
from pegainfer_core.kv import try_packing

if TYPE_CHECKING:
    from pegainfer_core.contract import GenerateRequest, RejectReason, ServePlan
    from pegainfer_core.engine.ledger import Ledger
    from pegainfer_core.engine.queue import WaitingQueue
    from pegainfer_core.engine.running import RunningSet
    from pegainfer_core.engine.slots import SlotPool
    from pegainfer_core.grammar import GrammarDesk, GrammarState
    from pegainfer_core.kv import KvManager

HEADROOM_TOKENS = 512
"""Output for which there must be room at a start, so that preemption does not follow at once.

For each request that runs already, there must be room for half as much: a start that soon takes the
pages of another costs both."""


class Admission:
    """Turns requests into sequences and lets them start when their KV fits.

    On demand, a start needs room for the known tokens and `headroom_tokens` of output (less when
    less was asked for), besides what those that run will soon need, and reserves the known tokens
    only. In the worst-case mode it reserves all that the request may ever use, and preemption
    never happens.

    Raises:
        ValueError: The plan promises answers of a form, and there are no `grammars` for them.

    Attributes:
        max_num_seqs: Most requests that run at once.
        prefix_query_tokens: Prompt tokens looked up in the prefix cache so far.
        prefix_hit_tokens: Those of them that were found there; what KV offload restored is not.
    """

    def __init__(
        self,
        plan: ServePlan,
        kv: KvManager,
        reserve: Literal["on-demand", "worst-case"] = "on-demand",
        headroom_tokens: int = HEADROOM_TOKENS,
        *,
        grammars: GrammarDesk | None = None,
    ) -> None:
        if plan.capabilities.structured and grammars is None:
            # Else the first request for a form would find out, and end the engine.
            raise ValueError(
                "the plan states the capability structured, but grammars is None: give what "
                "open_grammars makes to Admission and to BuiltEngine"
            )
        self._plan = plan
        self._grammars = grammars
        self._kv = kv
        self._reserve = reserve
        self._headroom_tokens = headroom_tokens
        self.max_num_seqs = plan.max_num_seqs
        self.prefix_query_tokens = 0
        self.prefix_hit_tokens = 0

    def accept(self, request: GenerateRequest, adapter: str = "") -> Sequence | RejectReason:
        """Make a sequence of a request, or say why it can never be served.

        A request without `max_tokens` may fill the context, or the pool where that is smaller. One
        that asks for more than the pool holds is refused, though it might have ended early.

        Args:
            request: What the client asks.
            adapter: Content of the request's adapter.
        """
        packed = try_packing(request.prompt_token_ids)
        reason = check_request(request, self._plan, packed)
        if reason is not None:
            return reason
        max_tokens = clamp_max_tokens(request, self._plan.max_model_len)
        num_prompt = len(request.prompt_token_ids)
        if request.params.max_tokens is None:
            pool_tokens = self._kv.pool.num_total * self._kv.page_tokens
            max_tokens = max(min(max_tokens, pool_tokens - num_prompt + 1), 1)
        needed_pages = self._kv.pages_for(_lifetime_tokens(num_prompt, max_tokens))
        if needed_pages > self._kv.pool.num_total:
            return KvBudget(
                needed_pages=needed_pages,
                total_pages=self._kv.pool.num_total,
                page_tokens=self._kv.page_tokens,
            )
        chain = self._kv.new_chain(
            cache_salt=request.cache_salt, adapter=adapter, packed=packed or b""
        )
        return Sequence(request, max_tokens, chain=chain, grammar=self._grammar(request))

    def start(self, sequence: Sequence, spared_pages: int = 0) -> bool:
        """Reserve KV for a waiting sequence, new or preempted; False when it must wait longer.

        Args:
            sequence: Holds no pages.
            spared_pages: Pages that must be left for others beyond its own needs.
        """
        lifetime = _lifetime_tokens(sequence.num_prompt, sequence.max_tokens)
        known = len(sequence.token_ids)
        return self._kv.admit(
            sequence,
            reserve_tokens=lifetime if self._reserve == "worst-case" else known,
            room_tokens=min(known + self._headroom_tokens, lifetime)
            + spared_pages * self._kv.page_tokens,
            # Cached pages hold KV, not logits: a prompt to be scored is computed in full.
            use_cache=sequence.prompt_logprobs is None,
        )

    def start_all(
        self, waiting: WaitingQueue, running: RunningSet, slots: SlotPool
    ) -> list[Sequence]:
        """Move all that can start now from the queue to the running set, each with a slot."""
        started: list[Sequence] = []
        if not slots or not waiting:
            return started
        spared_pages = sum(self._soon_needed(sequence) for sequence in running)
        for sequence in waiting.candidates():
            if self.start(sequence, spared_pages):
                spared_pages += self._soon_needed(sequence)
                waiting.take(sequence)
                sequence.slot = slots.take()
                running.add(sequence)
                started.append(sequence)
            if not slots:
                break
        return started

    def _grammar(self, request: GenerateRequest) -> GrammarState | None:
        """What the driver had read before it handed the request over."""
        if request.params.structured is None:
            return None
        found = None if self._grammars is None else self._grammars.take(request.request_id)
        if found is None:
            raise RuntimeError(
                f"the grammar of request {request.request_id} was never read; BuiltEngine must "
                "have the grammars of Admission"
            )
        return found

    def _soon_needed(self, sequence: Sequence) -> int:
        """Pages beyond its own for which a running sequence will ask soon."""
        if self._reserve == "worst-case":
            return 0
        known = len(sequence.token_ids)
        lifetime = _lifetime_tokens(sequence.num_prompt, sequence.max_tokens)
        soon = self._kv.pages_for(min(known + self._headroom_tokens // 2, lifetime))
        return max(soon - max(len(sequence.page_ids), sequence.num_reserved_pages), 0)

    def announce(self, sequence: Sequence, ledger: Ledger) -> None:
        """Tell a client, the first time only, that its tokens are about to be computed."""
        if sequence.scheduled:
            return
        sequence.scheduled = True
        sequence.num_cached = sequence.num_computed
        if sequence.chain is not None and sequence.prompt_logprobs is None:
            self.prefix_query_tokens += sequence.num_prompt
            self.prefix_hit_tokens += sequence.num_cached - sequence.num_restored
        ledger.schedule(sequence.request_id, sequence.num_cached)


def _lifetime_tokens(num_prompt: int, max_tokens: int) -> int:
    """Most tokens whose KV is ever written: the last generated one is never an input."""
    return num_prompt + max(max_tokens - 1, 0)
