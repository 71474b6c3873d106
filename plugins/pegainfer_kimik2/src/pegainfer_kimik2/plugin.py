"""What the host sees of Kimi-K2: it recognises checkpoints but cannot serve them yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.plugin import RecognisedFamily, hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.plugin import ModelFamily

__pegainfer_api__ = "1.0"


@hookimpl
def model_families() -> Sequence[ModelFamily]:
    """Offer the family to the host."""
    return [RecognisedFamily("kimik2", "Kimi-K2", ("kimi_k2", "kimi_k25"))]
