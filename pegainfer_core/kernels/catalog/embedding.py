"""Kernels that turn token ids into hidden states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.kernels.catalog.rows import SMALL_BLOCK
from pegainfer_core.kernels.catalog.sizes import count_type
from pegainfer_core.kernels.spec import KernelSpec

if TYPE_CHECKING:
    from pegainfer_core.kernels.catalog.sizes import ElementType


def embed_tokens(element: ElementType, width: int) -> KernelSpec:
    """Token embedding."""
    pointer = f"*{element}:16"
    return KernelSpec(
        module="embedding",
        function="embed_tokens",
        arguments=(pointer, "*i32", "*i32", pointer, count_type(width)),
        constants=(("BLOCK", SMALL_BLOCK),),
    )
