"""How large a step of a plan can get: what its buffers are made for. Light."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pegainfer_core.contract import ServePlan

PROMPT_TILE_ROWS: Final = 256
"""Most prompt tokens whose logits are held at once: a vocabulary wide, they are large."""


def max_step_tokens(plan: ServePlan) -> int:
    """Most tokens in one step: a token of every decoding row, and the prefill budget."""
    return plan.max_num_seqs + plan.max_prefill_tokens


def max_saves(plan: ServePlan) -> int:
    """Most copies of recurrent states in one step: two a row, and one every so many tokens."""
    return 2 * plan.max_num_seqs + plan.max_prefill_tokens // plan.page_tokens


def max_logit_rows(plan: ServePlan) -> int:
    """Most rows of logits held at once."""
    return max(plan.max_num_seqs, PROMPT_TILE_ROWS)
