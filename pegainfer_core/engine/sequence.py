"""One accepted request while it waits or runs: its ids, how far they are computed, its KV pages.

Knows nothing of models or devices; schedulers mutate it, runners read it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegainfer_core.contract import GenerateRequest, TokenLogprobs
    from pegainfer_core.grammar import GrammarState
    from pegainfer_core.kv import BlockChain
    from pegainfer_core.offload import PageHold, PageKeys


@dataclass(slots=True, eq=False, weakref_slot=True)
class Sequence:
    """Mutable state of one request inside a scheduler.

    Attributes:
        request: The client's request.
        max_tokens: Most tokens to generate, already clamped to the context window.
        token_ids: Prompt followed by every generated id.
        num_computed: Leading tokens whose KV is in `page_ids` once every launched step has
            completed (prefix hits included).
        num_completed: Those whose step has completed.
        num_unread: Tokens that launched steps chose and whose ids are not known here yet; they
            follow those in `token_ids`.
        page_ids: KV pages in order; page i holds tokens [i * page_tokens, (i + 1) * page_tokens).
        slot: Row of the runner's per-request tables, -1 while not running.
        num_cached: Tokens taken from the prefix cache when first admitted.
        num_preemptions: How often its pages were taken away.
        serial: Place in the order of arrival, kept for life; -1 before it was queued.
        scheduled: Whether its client was told that work on it began.
        num_reserved_pages: Pages promised to it, those it holds included.
        due_tokens: Completed tokens with which it has a page to publish.
        chain: Its blocks in the prefix cache, None when there is none.
        num_prompt: Tokens of the client's prompt.
        end_token_ids: Ids that end it: the model's unless ignored, and the client's.
        restoring: Its next pages are being brought back by KV offload: it computes nothing yet.
        num_restored: Of the tokens of its present KV, those that KV offload brought back.
        num_saved_pages: Leading pages that KV offload has been given, or need not be.
        hold: Keeps the pages of this stint in place while copies use them.
        page_keys: What its pages are called outside the device.
        prompt_logprobs: The prompt's log-probabilities so far; None when they were not asked for
            or were already sent, and then nobody needs them computed.
        adapter_slot: Where its adapter lies, -1 for none.
        grammar: What its answer may be; None for anything.
    """

    request: GenerateRequest
    max_tokens: int
    token_ids: list[int] = field(default_factory=list)
    num_computed: int = 0
    num_completed: int = 0
    num_unread: int = 0
    page_ids: list[int] = field(default_factory=list)
    slot: int = -1
    num_cached: int = 0
    num_preemptions: int = 0
    serial: int = -1
    scheduled: bool = False
    num_reserved_pages: int = 0
    due_tokens: int = sys.maxsize
    chain: BlockChain | None = None
    num_prompt: int = 0
    end_token_ids: frozenset[int] = frozenset()
    restoring: bool = False
    num_restored: int = 0
    num_saved_pages: int = 0
    hold: PageHold | None = None
    page_keys: PageKeys | None = None
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    adapter_slot: int = -1
    grammar: GrammarState | None = None

    def __post_init__(self) -> None:
        """Start from a copy of the prompt."""
        params = self.request.params
        self.token_ids = list(self.request.prompt_token_ids)
        self.num_prompt = len(self.token_ids)
        eos_token_ids = () if params.ignore_eos else self.request.eos_token_ids
        self.end_token_ids = frozenset(eos_token_ids).union(params.stop_token_ids)
        self.prompt_logprobs = None if params.prompt_logprobs is None else [None]

    @property
    def request_id(self) -> int:
        """The request's id."""
        return self.request.request_id

    @property
    def rank(self) -> tuple[int, int]:
        """Place among all requests: lower goes first, the highest is preempted first."""
        return (self.request.priority, self.serial)

    @property
    def num_generated(self) -> int:
        """Tokens generated so far, an end token included."""
        return len(self.token_ids) - self.num_prompt

    @property
    def num_uncomputed(self) -> int:
        """Tokens whose KV is still to be computed; 1 for a decoding request."""
        return len(self.token_ids) + self.num_unread - self.num_computed

    @property
    def decodes(self) -> bool:
        """Whether one token is left to compute and its successor is to be chosen.

        Not if a launched step chose the last token already, though its id was not read yet.
        """
        num_chosen = len(self.token_ids) + self.num_unread
        is_last = num_chosen - self.num_prompt >= self.max_tokens
        return num_chosen - self.num_computed == 1 and not is_last

    @property
    def prefills(self) -> bool:
        """Whether prompt tokens, or those a preemption took the KV of, are left to compute now."""
        return not self.restoring and self.num_uncomputed > (1 if self.max_tokens > 0 else 0)

    def preempted(self) -> None:
        """Count a preemption and forget what computing it again will bring anew."""
        self.num_preemptions += 1
        self.num_unread = self.num_restored = 0
        if self.prompt_logprobs is not None:
            self.prompt_logprobs = [None]
