"""Looks for cached prefixes once more where computing is about to begin.

Requests that come at once with one long prefix are admitted at once, when none of it is there yet.
While the first of them is computed the others wait for their turn, and by then it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.engine.chunking import plan_chunks, share_prefill_budget

if TYPE_CHECKING:
    from collections.abc import Sequence as Ordered

    from pegainfer_core.engine.budget import PrefillBudget
    from pegainfer_core.engine.sequence import Sequence
    from pegainfer_core.engine.step import Row
    from pegainfer_core.kv import KvManager


def match_late(prefilling: Ordered[Sequence], budget_tokens: int, kv: KvManager) -> None:
    """Match those sequences anew whose first chunk is due, each once in its life.

    Not for sequences that KV offload has in hand: it counts on the pages they began with.

    Args:
        prefilling: Sequences in order of rank, as `plan_chunks` takes them.
        budget_tokens: Most prompt tokens in the step.
        kv: Where they have their reservations.

    Raises:
        RuntimeError: A sequence did not get back what it gave up; a bug in the accounts.
    """
    unseen = {
        seq
        for seq in prefilling
        if not seq.scheduled and seq.prompt_logprobs is None and seq.hold is None
    }
    while unseen:
        shares = share_prefill_budget(prefilling, budget_tokens)
        due = [seq for seq, share in zip(prefilling, shares, strict=True) if share]
        due = [seq for seq in due if seq in unseen]
        if not due:
            return
        for sequence in due:
            # A longer prefix leaves more of the budget, so that others may be due next.
            unseen.remove(sequence)
            reserved_tokens = sequence.num_reserved_pages * kv.page_tokens
            kv.release(sequence)
            if not kv.admit(sequence, reserve_tokens=reserved_tokens, room_tokens=0):
                raise RuntimeError(f"request {sequence.request_id} lost its reservation")


def plan_prompts(
    prefilling: Ordered[Sequence], decoding: Ordered[Row], budget: PrefillBudget, kv: KvManager
) -> list[Row]:
    """Chunks of a step's prompts, without the prefixes that were found as late as now.

    Args:
        prefilling: Sequences in order of rank, as `plan_chunks` takes them.
        decoding: The step's other rows.
        budget: How many prompt tokens the step may have; asked again once prefixes are known.
        kv: Where the sequences have their reservations.
    """
    match_late(prefilling, budget.tokens(prefilling, decoding), kv)
    return plan_chunks(prefilling, budget.tokens(prefilling, decoding), kv)
