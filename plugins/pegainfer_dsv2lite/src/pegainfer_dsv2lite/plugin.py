"""What the host sees of DeepSeek-V2: it recognises checkpoints but cannot serve them yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pegainfer_core.contract import CoreOptions
from pegainfer_core.plugin import ChatProfile, Claim, FamilyOptions, Rejection, hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pegainfer_core.contract import LaunchContext, ServePlan
    from pegainfer_core.plugin import ConfigDict, ModelFamily

__pegainfer_api__ = "1.0"

MODEL_TYPES = ("deepseek_v2",)


class DeepseekV2Family:
    """DeepSeek-V2 checkpoints."""

    id = "dsv2lite"
    display_name = "DeepSeek-V2"
    options = FamilyOptions
    # Whatever flags were given, the answer is the one refusal below.
    shared_options = frozenset(CoreOptions.__struct_fields__)
    chat = ChatProfile()

    def probe(self, config: ConfigDict, model_dir: Path) -> Claim | Rejection:
        """Claim by `model_type`."""
        model_type = config.get("model_type")
        if model_type in MODEL_TYPES:
            return Claim("recognised; serving it is not implemented in this version")
        return Rejection(f"model_type is {model_type!r}, not {' or '.join(map(repr, MODEL_TYPES))}")

    def plan(self, context: LaunchContext) -> ServePlan:
        """Refuse."""
        _refuse(context)

    def launch(self, context: LaunchContext, plan: ServePlan) -> NoReturn:
        """Refuse."""
        _refuse(context)


def _refuse(context: LaunchContext) -> NoReturn:
    from pegainfer_core.weights import ConfigError

    raise ConfigError(
        f"{context.model_dir}: serving DeepSeek-V2 is not implemented in this version of "
        "pegainfer-dsv2lite; look for a newer one"
    )


@hookimpl
def model_families() -> Sequence[ModelFamily]:
    """Offer the family to the host."""
    return [DeepseekV2Family()]
