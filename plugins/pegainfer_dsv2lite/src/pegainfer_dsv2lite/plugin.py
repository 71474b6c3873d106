"""What the host sees of DeepSeek-V2: it recognises checkpoints but cannot serve them yet."""

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
    return [RecognisedFamily("dsv2lite", "DeepSeek-V2", ("deepseek_v2",))]
