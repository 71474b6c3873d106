from __future__ import annotations

from pathlib import Path

from pegainfer_core.testing import FamilyConformance, Requirements, tiny_qwen35

SIZES = {"hidden_size": 2560, "num_hidden_layers": 32, "vocab_size": 248320}
VISION = {"vision_config": {"depth": 24}}


class TestQwen35(FamilyConformance):
    plugin = "pegainfer_qwen35.plugin"
    family = "qwen35"
    claims = (
        {"model_type": "qwen3_5_text", "architectures": ["Qwen3_5ForCausalLM"], **SIZES},
        {
            "model_type": "qwen3_5",
            "architectures": ["Qwen3_5ForConditionalGeneration"],
            "text_config": {"model_type": "qwen3_5_text", **SIZES},
            **VISION,
        },
        {"text_config": {"model_type": "qwen3_5_text", **SIZES}},
    )
    refuses = (
        {"model_type": "qwen3_5", **SIZES, "quantization_config": {"quant_method": "fp8"}},
        {"model_type": "qwen3_5_moe", "text_config": {"num_experts": 256, **SIZES}},
        {"model_type": "qwen3_5_moe_text", "num_experts": 256, **SIZES},
        {"model_type": "qwen3_5_text", "num_experts": 256, **SIZES},
    )
    requirements = Requirements(structured=True)

    @staticmethod
    def make_model(folder: Path) -> None:
        tiny_qwen35(
            folder,
            hidden=64,
            intermediate=96,
            head_dim=16,
            linear_heads=(1, 2),
            linear_dims=(16, 16),
            vocab=300,
        )
