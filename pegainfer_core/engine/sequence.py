"""One admitted request while it runs: its ids, how far they are computed, and its KV pages.

Knows nothing of models or devices; schedulers mutate it, runners read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegainfer_core.contract import GenerateRequest


@dataclass(slots=True, eq=False)
class Sequence:
    """Mutable state of one request inside a scheduler.

    Attributes:
        request: The client's request.
        max_tokens: Most tokens to generate, already clamped to the context window.
        token_ids: Prompt followed by every generated id.
        num_computed: Leading tokens whose KV is in `page_ids` (prefix hits included).
        page_ids: KV pages in order; page i holds tokens [i * page_tokens, (i + 1) * page_tokens).
        slot: Row of the runner's per-request tables, -1 while not running.
        num_cached: Tokens taken from the prefix cache when first admitted.
        num_preemptions: How often its pages were taken away.
    """

    request: GenerateRequest
    max_tokens: int
    token_ids: list[int] = field(default_factory=list)
    num_computed: int = 0
    page_ids: list[int] = field(default_factory=list)
    slot: int = -1
    num_cached: int = 0
    num_preemptions: int = 0

    def __post_init__(self) -> None:
        """Start from a copy of the prompt."""
        self.token_ids = list(self.request.prompt_token_ids)

    @property
    def request_id(self) -> int:
        """The request's id."""
        return self.request.request_id

    @property
    def num_prompt(self) -> int:
        """Tokens of the client's prompt."""
        return len(self.request.prompt_token_ids)

    @property
    def num_generated(self) -> int:
        """Tokens generated so far, an end token included."""
        return len(self.token_ids) - len(self.request.prompt_token_ids)

    @property
    def num_uncomputed(self) -> int:
        """Tokens whose KV is still to be computed; 1 for a decoding request."""
        return len(self.token_ids) - self.num_computed
