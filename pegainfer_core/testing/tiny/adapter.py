"""A tiny LoRA adapter in PEFT's format whose random values change every answer."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pegainfer_core.testing.tiny.values import seeded_values
from pegainfer_core.weights import ArraySource, FloatArray, FloatType, write_safetensors

__all__ = ["ADAPTER_MODULES", "tiny_adapter"]

ADAPTER_MODULES: Final = (
    *("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    *("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
)
"""All that a decoder's layer offers, in its order."""

#: Standard deviation of what an adapter adds to outputs whose own is about one.
_ADDED_STD: Final = 0.5


def tiny_adapter(
    folder: Path,
    model_dir: Path,
    *,
    rank: int = 4,
    alpha: float = 8.0,
    modules: Sequence[str] = ADAPTER_MODULES,
    dtype: FloatType = "float32",
    use_rslora: bool = False,
    prefix: str = "base_model.model.model.layers",
    settings: Mapping[str, object] | None = None,
    tensors: Mapping[str, FloatArray] | None = None,
    seed: int = 0,
) -> Path:
    """Write adapter_config.json and adapter_model.safetensors for a tiny decoder.

    Args:
        folder: The adapter's; made if missing, must hold no weights.
        model_dir: The checkpoint it is for; its config.json is read.
        rank: Of all modules.
        alpha: With it, what is added is scaled by `alpha / rank`.
        modules: Which of a layer's modules it changes, in every layer.
        dtype: How the weights are stored.
        use_rslora: Scale by `alpha / sqrt(rank)` instead.
        prefix: Of the tensors' names.
        settings: Further keys of adapter_config.json, for tests of what is refused.
        tensors: Tensors that replace or join those of these names, likewise.
        seed: Of the weights.

    Returns:
        The folder.

    Raises:
        ConfigError: The folder already holds weights.
    """
    config = json.loads((model_dir / "config.json").read_text(encoding="utf-8"))
    scale = alpha / (rank**0.5 if use_rslora else rank)
    values: dict[str, FloatArray] = {}
    for layer in range(config["num_hidden_layers"]):
        for module in modules:
            inputs, outputs = _sizes(config, module)
            name = f"{prefix}.{layer}.{module}"
            std_up = _ADDED_STD / (abs(scale) * rank**0.5)
            for side, shape, std in (
                ("lora_A", (rank, inputs), inputs**-0.5),
                ("lora_B", (outputs, rank), std_up),
            ):
                key = f"{name}.{side}.weight"
                values[key] = seeded_values(f"{seed} {key}", shape, 0.0, std, dtype, seed)
    values |= tensors or {}
    (written,) = write_safetensors(folder, ArraySource(values, dtype))
    written.rename(folder / "adapter_model.safetensors")
    written_config = {
        "base_model_name_or_path": str(model_dir.name),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": rank,
        "rank_pattern": {},
        "target_modules": sorted(module.rpartition(".")[2] for module in modules),
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": use_rslora,
        **(settings or {}),
    }
    text = json.dumps(written_config, indent=1) + "\n"
    (folder / "adapter_config.json").write_text(text, encoding="utf-8")
    return folder


def _sizes(config: Mapping[str, int], module: str) -> tuple[int, int]:
    """Inputs and outputs."""
    hidden, inner, head_dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    query = config["num_attention_heads"] * head_dim
    key = config["num_key_value_heads"] * head_dim
    sizes = (
        *((hidden, query), (hidden, key), (hidden, key), (query, hidden)),
        *((hidden, inner), (hidden, inner), (inner, hidden)),
    )
    return dict(zip(ADAPTER_MODULES, sizes, strict=True))[module]
