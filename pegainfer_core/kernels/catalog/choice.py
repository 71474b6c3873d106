"""Kernels that choose tokens from logits."""

from __future__ import annotations

from typing import Final

from pegainfer_core.kernels.spec import KernelSpec

CHOICE_WORDS: Final = 32
"""int32 words that describe one row's choice; `sampling.choice_words` knows which is what."""

ARGMAX_PARTS: Final = 32
ARGMAX_BLOCK: Final = 1024


def argmax_parts() -> KernelSpec:
    """Best of parts of rows of logits."""
    return KernelSpec(
        module="argmax",
        function="argmax_parts",
        arguments=(*("*fp32",) * 3, "i32", "i32"),
        constants=(("BLOCK", ARGMAX_BLOCK),),
    )


def argmax_rows() -> KernelSpec:
    """Best of the parts of each row."""
    return KernelSpec(
        module="argmax",
        function="argmax_rows",
        arguments=(*("*fp32",) * 3, "i32"),
        constants=(("BLOCK", ARGMAX_PARTS),),
        num_warps=1,
    )
