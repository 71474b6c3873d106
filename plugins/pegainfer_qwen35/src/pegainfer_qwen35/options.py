"""Qwen3.5's own options. Light: the command line is made of them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from pegainfer_core.plugin import FamilyOptions


class Qwen35Options(FamilyOptions, frozen=True, kw_only=True):
    """Beside the core's."""

    state_cache_gib: Annotated[
        float | None,
        Meta(
            description="memory for the prefix cache's recurrent states in GiB "
            "(default: 1 on CPU, 8 on CUDA)"
        ),
    ] = None
