from __future__ import annotations

from pathlib import Path

from pegainfer_core.testing import FamilyConformance, Requirements, tiny_qwen3

SIZES = {"hidden_size": 1024, "num_hidden_layers": 28, "vocab_size": 151936}


class TestQwen3(FamilyConformance):
    plugin = "pegainfer_qwen3.plugin"
    family = "qwen3"
    claims = (
        {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], **SIZES},
        {"text_config": {"model_type": "qwen3", **SIZES}},
    )
    refuses = (
        {"model_type": "qwen3", **SIZES, "quantization_config": {"quant_method": "awq", "bits": 4}},
    )
    requirements = Requirements(structured=True)

    @staticmethod
    def make_model(folder: Path) -> None:
        tiny_qwen3(folder, hidden=64, intermediate=96, heads=(4, 2), head_dim=16, vocab=300)
