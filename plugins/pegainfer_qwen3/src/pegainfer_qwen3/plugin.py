"""What the host sees of Qwen3: which checkpoints it claims and how they will be served.

Every start of the CLI imports this module, so even light imports wait until they are needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pegainfer_core.plugin import (
    DECODER_OPTIONS,
    LORA_OPTIONS,
    ChatProfile,
    Claim,
    FamilyOptions,
    Rejection,
    hookimpl,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.contract import EngineHandle, LaunchContext, ServePlan
    from pegainfer_core.plugin import ConfigDict, ModelFamily
    from pegainfer_core.weights import TensorSpecs

__pegainfer_api__ = "1.0"

MODEL_TYPE = "qwen3"


class Qwen3Family:
    """Dense Qwen3 checkpoints, 0.6B to 32B."""

    id = "qwen3"
    display_name = "Qwen3"
    options = FamilyOptions
    shared_options = DECODER_OPTIONS | LORA_OPTIONS
    chat = ChatProfile(tool_parser="hermes", reasoning_parser="think")

    def probe(self, config: ConfigDict, model_dir: Path) -> Claim | Rejection:
        """Claim by `model_type`, and refuse quantized weights."""
        from pegainfer_core.weights import ConfigError, model_type, refuse_quantization

        found = model_type(config)
        if found != MODEL_TYPE:
            return Rejection(f"model_type is {found!r}, not {MODEL_TYPE!r}")
        try:
            refuse_quantization(config)
        except ConfigError as error:
            return Rejection(str(error), recognised=True)
        return Claim("dense Qwen3")

    def plan(self, context: LaunchContext) -> ServePlan:
        """Take sizes from config.json and limits from the options; see `plan_qwen3`.

        Raises:
            ConfigError: The checkpoint is quantized, a size is missing, or a limit is impossible.
        """
        from pegainfer_core.weights import load_config, refuse_quantization
        from pegainfer_qwen3.config import plan_qwen3

        # `--family qwen3` comes here without a probe.
        refuse_quantization(load_config(Path(context.model_dir)))
        return plan_qwen3(context)

    def launch(self, context: LaunchContext, plan: ServePlan) -> EngineHandle:
        """Load the weights and start the engine; NumPy and the rest are imported here."""
        from pegainfer_qwen3.engine import launch

        return launch(context, plan)

    def tensor_specs(self, config: ConfigDict) -> TensorSpecs:
        """The checkpoint's tensors, for dummy weights."""
        from pegainfer_qwen3.weights import tensor_specs

        return tensor_specs(config)


@hookimpl
def model_families() -> Sequence[ModelFamily]:
    """Offer the family to the host."""
    return [Qwen3Family()]
