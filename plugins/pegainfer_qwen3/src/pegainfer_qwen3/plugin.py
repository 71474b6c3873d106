"""What the host sees of Qwen3: which checkpoints it claims and how they will be served.

Every start of the CLI imports this module, so even light imports wait until they are needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pegainfer_core.plugin import ChatProfile, Claim, FamilyOptions, Rejection, hookimpl

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
    shared_options = frozenset(
        {
            "backend",
            "cuda_graph",
            "device",
            "gpu_memory_utilization",
            "itl_target_ms",
            "kv_events",
            "kv_events_encoding",
            "kv_events_replay",
            "kv_events_topic",
            "kv_hash",
            "kv_hash_seed",
            "kv_offload",
            "kv_offload_disk_gib",
            "kv_offload_disk_path",
            "kv_offload_host_gib",
            "kv_page_size",
            "kv_reserve",
            "load_format",
            "lora",
            "max_lora_rank",
            "max_loras",
            "max_model_len",
            "max_num_seqs",
            "max_prefill_tokens",
            "num_kv_pages",
            "prefix_cache",
            "seed",
        }
    )
    chat = ChatProfile(tool_parser="hermes", reasoning_parser="think")

    def probe(self, config: ConfigDict, model_dir: Path) -> Claim | Rejection:
        """Claim by `model_type`, and refuse quantized weights."""
        from pegainfer_core.weights import ConfigError, refuse_quantization

        model_type = _model_type(config)
        if model_type != MODEL_TYPE:
            return Rejection(f"model_type is {model_type!r}, not {MODEL_TYPE!r}")
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


def _model_type(config: ConfigDict) -> object:
    """The outer type; only a config that has none is judged by its `text_config`.

    A foreign outer type with a Qwen3 text model inside is another model, with parts we lack.
    """
    from pegainfer_core.weights import text_config

    model_type = config.get("model_type")
    return text_config(config).get("model_type") if model_type is None else model_type


@hookimpl
def model_families() -> Sequence[ModelFamily]:
    """Offer the family to the host."""
    return [Qwen3Family()]
