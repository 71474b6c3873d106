"""What the host sees of Qwen3.5: which checkpoints it claims and how they will be served.

Every start of the CLI imports this module, so even light imports wait until they are needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pegainfer_core.plugin import (
    DECODER_OPTIONS,
    ChatProfile,
    Claim,
    FamilyOptions,
    Rejection,
    hookimpl,
)
from pegainfer_qwen35.options import Qwen35Options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.contract import EngineHandle, LaunchContext, ServePlan
    from pegainfer_core.plugin import ConfigDict, ModelFamily
    from pegainfer_core.weights import TensorSpecs

__pegainfer_api__ = "1.0"

MODEL_TYPES = ("qwen3_5", "qwen3_5_text")
_EXPERT_TYPES = ("qwen3_5_moe", "qwen3_5_moe_text")


class Qwen35Family:
    """Dense Qwen3.5 checkpoints, 0.8B to 27B; of multimodal ones the text model."""

    id = "qwen35"
    display_name = "Qwen3.5"
    options: type[FamilyOptions] = Qwen35Options
    shared_options = DECODER_OPTIONS
    chat = ChatProfile(tool_parser="qwen3_coder", reasoning_parser="think")

    def probe(self, config: ConfigDict, model_dir: Path) -> Claim | Rejection:
        """Claim by `model_type`, and refuse mixtures of experts and quantized weights."""
        from pegainfer_core.weights import ConfigError, model_type

        found = model_type(config)
        if found not in (*MODEL_TYPES, *_EXPERT_TYPES):
            return Rejection(f"model_type is {found!r}, not {' or '.join(MODEL_TYPES)}")
        try:
            _require_servable(config)
        except ConfigError as error:
            return Rejection(str(error), recognised=True)
        return Claim("dense Qwen3.5" + (", text only" if "vision_config" in config else ""))

    def plan(self, context: LaunchContext) -> ServePlan:
        """Take sizes from config.json and limits from the options; see `plan_qwen35`.

        Raises:
            ConfigError: The checkpoint is quantized or a mixture of experts, a size is missing, or
                a limit is impossible.
        """
        from pegainfer_core.weights import load_config
        from pegainfer_qwen35.config import plan_qwen35

        # `--family qwen35` comes here without a probe.
        _require_servable(load_config(Path(context.model_dir)))
        return plan_qwen35(context)

    def launch(self, context: LaunchContext, plan: ServePlan) -> EngineHandle:
        """Load the weights and start the engine; NumPy and the rest are imported here."""
        from pegainfer_qwen35.engine import launch

        return launch(context, plan)

    def tensor_specs(self, config: ConfigDict) -> TensorSpecs:
        """The checkpoint's tensors, for dummy weights."""
        from pegainfer_qwen35.weights import tensor_specs

        return tensor_specs(config)


def _require_servable(config: ConfigDict) -> None:
    from pegainfer_core.weights import (
        ConfigError,
        model_type,
        refuse_quantization,
        text_config,
    )

    refuse_quantization(config)
    flat = text_config(config)
    if model_type(config) in _EXPERT_TYPES or flat.get("num_experts"):
        raise ConfigError(
            "config.json: Qwen3.5 with a mixture of experts is not supported in this version; "
            "only the dense sizes are served"
        )


@hookimpl
def model_families() -> Sequence[ModelFamily]:
    """Offer the family to the host."""
    return [Qwen35Family()]
