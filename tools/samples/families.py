"""The small model of each family: its transformers config and how its checkpoint is published.

All fit 4 MB in bfloat16 together with their tokenizer. Imports torch and transformers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from transformers import (
    AutoModelForCausalLM,
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from samples.tokenizer import MAX_TOKENS, VOCAB_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from transformers import PretrainedConfig, PreTrainedModel

_END_OF_TEXT_ID = VOCAB_SIZE - 3
_TURN_END_ID = VOCAB_SIZE - 1

_SHARED: dict[str, object] = {
    "vocab_size": VOCAB_SIZE,
    "max_position_embeddings": MAX_TOKENS,
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": _TURN_END_ID,
    "pad_token_id": _END_OF_TEXT_ID,
}
_MLA: dict[str, object] = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family's sample.

    Attributes:
        config_class: transformers'.
        model_class: transformers'.
        sizes: Of the model.
        published: Config keys that its releases have beside transformers'.
        repetition_penalty: Greedy text loops at less and ends or wanders off early at more; see
            `--check`.
    """

    config_class: type[PretrainedConfig]
    model_class: type[PreTrainedModel]
    sizes: Mapping[str, object]
    published: Mapping[str, object] = field(default_factory=dict)
    repetition_penalty: float = 1.17

    def build(self, seed: int) -> PreTrainedModel:
        """Make the model with random float32 weights."""
        torch.manual_seed(seed)
        config = self.config_class(**{**_SHARED, **self.sizes})
        return self.model_class(config)


FAMILIES: dict[str, Family] = {
    "qwen3": Family(
        config_class=Qwen3Config,
        model_class=Qwen3ForCausalLM,
        sizes={
            "hidden_size": 160,
            "intermediate_size": 288,
            "num_hidden_layers": 6,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        },
    ),
    "qwen35": Family(
        config_class=Qwen3_5TextConfig,
        model_class=Qwen3_5ForCausalLM,
        sizes={
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 8,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 64,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 32,
            "linear_value_head_dim": 32,
            "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 2,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10_000.0,
                "partial_rotary_factor": 0.25,
                "mrope_section": [4, 2, 2],
                "mrope_interleaved": True,
            },
        },
        repetition_penalty=1.2,
    ),
    "dsv2lite": Family(
        config_class=DeepseekV2Config,
        model_class=DeepseekV2ForCausalLM,
        sizes={
            **_MLA,
            "q_lora_rank": None,
            "topk_method": "greedy",
            "routed_scaling_factor": 1.0,
            "norm_topk_prob": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        },
        published={"scoring_func": "softmax", "moe_layer_freq": 1},
    ),
    "kimik2": Family(
        config_class=DeepseekV3Config,
        model_class=DeepseekV3ForCausalLM,
        sizes={
            **_MLA,
            "q_lora_rank": 64,
            "routed_scaling_factor": 2.827,
            "norm_topk_prob": True,
            "num_nextn_predict_layers": 0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        },
        published={
            "model_type": "kimi_k2",
            "scoring_func": "sigmoid",
            "topk_method": "noaux_tc",
            "moe_layer_freq": 1,
        },
    ),
}


def load_float32(folder: Path) -> PreTrainedModel:
    """Load a sample checkpoint for a reference run in float32.

    Raises:
        ValueError: weights are missing or left over, which transformers alone only logs.
    """
    raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    options: dict[str, object] = {"dtype": torch.float32, "output_loading_info": True}
    if raw["model_type"] == "kimi_k2":
        # transformers looks its weight conversion up by model type and does not know this name.
        raw["model_type"] = "deepseek_v3"
        config = DeepseekV3Config.from_dict(raw)
        model, info = DeepseekV3ForCausalLM.from_pretrained(folder, config=config, **options)
    else:
        model, info = AutoModelForCausalLM.from_pretrained(folder, **options)
    wrong = {key: value for key, value in info.items() if value}
    if wrong:
        raise ValueError(f"{folder}: the weights do not fit the config: {wrong}")
    return model.eval()
