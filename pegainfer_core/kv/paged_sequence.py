"""What the KV manager needs of a sequence; `pegainfer_core.engine.Sequence` is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pegainfer_core.kv.chain import BlockChain


class PagedSequence(Protocol):
    """What the manager reads and writes of a sequence."""

    token_ids: list[int]
    num_computed: int
    num_completed: int
    page_ids: list[int]
    num_reserved_pages: int
    due_tokens: int
    chain: BlockChain | None
