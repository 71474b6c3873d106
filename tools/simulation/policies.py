"""Chunk policies: what might stand in the place of `pegainfer_core.engine.prefill_budget`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Ordered
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from unittest import mock

from pegainfer_qwen3 import scheduler

from pegainfer_core.engine import prefill_budget

if TYPE_CHECKING:
    from pegainfer_core.engine import Sequence

Policy = Callable[[Ordered["Sequence"], int, int], int]
"""Of prefilling sequences, the most tokens in a step, and decoding rows: prompt tokens."""

_MANY_PROMPTS, _MANY_WAITING, _LONE = 4, 4096, 4096


def beside(mixed_tokens: int, many_tokens: int | None = None) -> Policy:
    """The present policy with other numbers.

    Args:
        mixed_tokens: Most prompt tokens beside decoding rows while few wait.
        many_tokens: Most of them while many wait; None: as many as a step may hold.
    """

    def budget(sequences: Ordered[Sequence], limit_tokens: int, num_decode: int) -> int:
        if not num_decode:
            return min(_LONE, limit_tokens) if len(sequences) == 1 else limit_tokens
        waiting = sum(sequence.num_uncomputed for sequence in sequences)
        if len(sequences) >= _MANY_PROMPTS and waiting >= _MANY_WAITING:
            return min(many_tokens or limit_tokens, limit_tokens)
        return min(mixed_tokens, limit_tokens)

    return budget


def always_limit(sequences: Ordered[Sequence], limit_tokens: int, num_decode: int) -> int:
    """As much as a step may hold."""
    return limit_tokens


def half_backlog(sequences: Ordered[Sequence], limit_tokens: int, num_decode: int) -> int:
    """Beside decoding rows half of what waits, but 256 tokens at least."""
    if not num_decode:
        return beside(0)(sequences, limit_tokens, 0)
    waiting = sum(sequence.num_uncomputed for sequence in sequences)
    return min(max(waiting // 2, 256), limit_tokens)


POLICIES: Final[dict[str, Policy]] = {
    "present": prefill_budget,
    "256": beside(256),
    "512": beside(512),
    "2048": beside(2048),
    "limit": always_limit,
    "half": half_backlog,
    "many-2048": beside(1024, 2048),
    "many-4096": beside(1024, 4096),
    "strict-512": beside(512, 512),
    "strict-1024": beside(1024, 1024),
    "strict-2048": beside(2048, 2048),
}
"""By name. `N`: the present one with N tokens beside decoding rows while few wait; `many-N`: with N
while many wait; `strict-N`: N however many wait."""


@contextmanager
def in_place(policy: Policy) -> Iterator[None]:
    """Let Qwen3's scheduler, unchanged, look up another policy under the name it imports."""

    def budget(sequences: Ordered[Sequence], limit_tokens: int, num_decode: int) -> int:
        return policy(sequences, limit_tokens, num_decode)

    with mock.patch.object(scheduler, "prefill_budget", budget):
        yield
