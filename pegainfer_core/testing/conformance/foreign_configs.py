"""Configs of models by many makers, cut down to what families look at.

Each is under the name of the kind it stands for. Sizes are those of a common release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pegainfer_core.plugin import ConfigDict

__all__ = ["FOREIGN_CONFIGS"]


def _config(
    model_type: object, architecture: str, *sizes: int, **other: object
) -> dict[str, object]:
    """A dense decoder's config: hidden size, layers, heads, KV heads, vocabulary, and the rest."""
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    config: dict[str, object] = {"model_type": model_type, "architectures": [architecture]}
    return config | dict(zip((*names, "vocab_size"), sizes, strict=False)) | other


_QWEN3_TEXT: Final = _config("qwen3", "Qwen3ForCausalLM", 4096, 36, 32, 8, 151936, head_dim=128)
_MOE: Final = {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}
_MLA: Final = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}

FOREIGN_CONFIGS: Final[dict[str, ConfigDict]] = {
    "llama": _config("llama", "LlamaForCausalLM", 4096, 32, 32, 8, 128256),
    "llama4": _config(
        "llama4",
        "Llama4ForConditionalGeneration",
        text_config=_config("llama4_text", "", 5120, 48, 40, 8, 202048, num_local_experts=16),
    ),
    "mistral": _config("mistral", "MistralForCausalLM", 4096, 32, 32, 8, 32768),
    "mixtral": _config(
        "mixtral", "MixtralForCausalLM", 4096, 32, 32, 8, 32000, num_local_experts=8
    ),
    "gemma3": _config(
        "gemma3",
        "Gemma3ForConditionalGeneration",
        text_config=_config("gemma3_text", "", 2560, 34, 8, 4, 262208, sliding_window=1024),
        vision_config={"model_type": "siglip_vision_model", "hidden_size": 1152},
    ),
    "gemma4": _config(
        "gemma4",
        "Gemma4ForConditionalGeneration",
        text_config=_config("gemma4_text", "", 2560, 42, 8, 2, 262144, sliding_window=512),
        vision_config={"model_type": "gemma4_vision"},
    ),
    "phi3": _config("phi3", "Phi3ForCausalLM", 3072, 32, 32, 32, 32064),
    "qwen2": _config("qwen2", "Qwen2ForCausalLM", 3584, 28, 28, 4, 152064),
    "qwen2_moe": _config("qwen2_moe", "Qwen2MoeForCausalLM", 2048, 24, 16, 16, 151936, **_MOE),
    "qwen2_5_vl": _config(
        "qwen2_5_vl",
        "Qwen2_5_VLForConditionalGeneration",
        *(2048, 36, 16, 2, 151936),
        vision_config={"depth": 32},
    ),
    "qwen3": _QWEN3_TEXT,
    "qwen3_moe": _config("qwen3_moe", "Qwen3MoeForCausalLM", 2048, 48, 32, 4, 151936, **_MOE),
    "qwen3_next": _config(
        "qwen3_next",
        "Qwen3NextForCausalLM",
        *(2048, 48, 16, 2, 151936),
        **_MOE,
        linear_num_value_heads=32,
        full_attention_interval=4,
    ),
    "qwen3_vl": _config(
        "qwen3_vl",
        "Qwen3VLForConditionalGeneration",
        text_config=_config("qwen3_vl_text", "", 2560, 36, 32, 8, 151936),
        vision_config={"model_type": "qwen3_vl", "depth": 24},
    ),
    "qwen3_5": _config(
        "qwen3_5",
        "Qwen3_5ForConditionalGeneration",
        text_config=_config("qwen3_5_text", "", 2560, 32, 16, 4, 248320, head_dim=256),
    ),
    "qwen3_5_moe": _config(
        "qwen3_5_moe",
        "Qwen3_5MoeForConditionalGeneration",
        text_config=_config("qwen3_5_moe_text", "", 2048, 40, 16, 2, 248320, **_MOE),
    ),
    "internvl": _config(
        "internvl",
        "InternVLForConditionalGeneration",
        text_config=_QWEN3_TEXT,
        vision_config={"model_type": "internvl_vision"},
    ),
    "deepseek_v2": _config(
        "deepseek_v2", "DeepseekV2ForCausalLM", 5120, 60, 128, 128, 102400, **_MLA
    ),
    "deepseek_v3": _config(
        "deepseek_v3",
        "DeepseekV3ForCausalLM",
        *(7168, 61, 128, 128, 129280),
        **_MLA,
        n_routed_experts=256,
        quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]},
    ),
    "kimi_k2": _config(
        "kimi_k2", "DeepseekV3ForCausalLM", 7168, 61, 64, 64, 163840, **_MLA, n_routed_experts=384
    ),
    "glm4_moe": _config(
        "glm4_moe", "Glm4MoeForCausalLM", 4096, 46, 96, 8, 151552, n_routed_experts=128
    ),
    "gpt_oss": _config(
        "gpt_oss", "GptOssForCausalLM", 2880, 24, 64, 8, 201088, num_local_experts=32
    ),
    "granite": _config("granite", "GraniteForCausalLM", 2048, 40, 32, 8, 49155),
    "olmo3": _config("olmo3", "Olmo3ForCausalLM", 4096, 32, 32, 32, 100278),
    "minimax_m2": _config(
        "minimax_m2", "MiniMaxM2ForCausalLM", 3072, 62, 48, 8, 200064, num_local_experts=256
    ),
    "mamba2": {
        "model_type": "mamba2",
        "architectures": ["Mamba2ForCausalLM"],
        "hidden_size": 2560,
        "state_size": 128,
    },
    "whisper": {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "d_model": 1280,
        "encoder_layers": 32,
    },
    "bert": {
        "model_type": "bert",
        "architectures": ["BertForMaskedLM"],
        "hidden_size": 768,
        "num_hidden_layers": 12,
    },
    "unnamed": {"architectures": ["SomethingNewForCausalLM"], "hidden_size": 1024},
    "empty": {},
    "nameless": {"model_type": None, "architectures": None},
    "numeric": {"model_type": 3, "architectures": "LlamaForCausalLM"},
}
"""By kind. The last four are no model's: odd files that must not make a probe raise."""
