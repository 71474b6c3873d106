"""Qwen3's tensors: their names in a checkpoint, and the parameters made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from pegainfer_core.backend import AttentionWeights, DecoderWeights, MlpWeights
from pegainfer_core.weights import EMBEDDING, HEAD, NORM, TensorSpec
from pegainfer_qwen3.config import parse_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pegainfer_core.backend import Backend, DType, Tensor
    from pegainfer_core.weights import ParameterLoader
    from pegainfer_qwen3.config import Qwen3Config


@dataclass(frozen=True, slots=True, eq=False)
class LayerWeights:
    """Parameters of one decoder layer."""

    attention: AttentionWeights
    mlp: MlpWeights


Qwen3Weights: TypeAlias = DecoderWeights[LayerWeights]


def tensor_specs(config: Mapping[str, object]) -> dict[str, TensorSpec]:
    """Every tensor that a checkpoint with this config.json must hold, in reading order.

    Raises:
        ConfigError: The config is at fault.
    """
    return model_specs(parse_config(config))


def model_specs(config: Qwen3Config) -> dict[str, TensorSpec]:
    """Every tensor of a model."""
    hidden, vocab = config.hidden_size, config.vocab_size
    specs = {EMBEDDING: TensorSpec((vocab, hidden), "embedding")}
    for layer in range(config.num_layers):
        specs |= _layer_specs(config, f"model.layers.{layer}.")
    specs[NORM] = TensorSpec((hidden,), "norm")
    if not config.tied:
        specs[HEAD] = TensorSpec((vocab, hidden), "head")
    return specs


def _layer_specs(config: Qwen3Config, prefix: str) -> dict[str, TensorSpec]:
    hidden, inner, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
    query, key = config.num_heads * head_dim, config.num_kv_heads * head_dim
    shapes = {
        "self_attn.q_proj": (query, hidden),
        "self_attn.k_proj": (key, hidden),
        "self_attn.v_proj": (key, hidden),
        "self_attn.o_proj": (hidden, query),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    norms = {
        "input_layernorm": hidden,
        "self_attn.q_norm": head_dim,
        "self_attn.k_norm": head_dim,
        "post_attention_layernorm": hidden,
    }
    specs = {f"{prefix}{name}.weight": TensorSpec(shape) for name, shape in shapes.items()}
    for name, width in norms.items():
        specs[f"{prefix}{name}.weight"] = TensorSpec((width,), "norm")
    return specs


def load_weights(
    loader: ParameterLoader, config: Qwen3Config, backend: Backend, dtype: DType
) -> Qwen3Weights:
    """Read every parameter, fused the way the ops take them.

    Args:
        loader: Over `model_specs`.
        config: The model.
        backend: Where the parameters live.
        dtype: Type they are computed in.

    Raises:
        ConfigError: The checkpoint does not hold them.
    """

    def read(name: str) -> Tensor:
        return backend.load(loader, [name], dtype)

    embedding = read(EMBEDDING)
    layers = tuple(
        _load_layer(loader, config, backend, dtype, f"model.layers.{i}.")
        for i in range(config.num_layers)
    )
    norm = read(NORM)
    head = embedding if config.tied else read(HEAD)
    return Qwen3Weights(embedding, layers, norm, head)


def _load_layer(
    loader: ParameterLoader, config: Qwen3Config, backend: Backend, dtype: DType, prefix: str
) -> LayerWeights:
    def parameter(*names: str) -> Tensor:
        return backend.load(loader, [f"{prefix}{name}.weight" for name in names], dtype)

    head_norm = np.concatenate(
        [
            np.tile(loader.read(f"{prefix}self_attn.q_norm.weight"), (config.num_heads, 1)),
            np.tile(loader.read(f"{prefix}self_attn.k_norm.weight"), (config.num_kv_heads, 1)),
        ]
    )

    attention = AttentionWeights(
        input_norm=parameter("input_layernorm"),
        qkv=parameter("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        head_norm=backend.adopt(head_norm, dtype),
        out=parameter("self_attn.o_proj"),
    )
    mlp = MlpWeights(
        norm=parameter("post_attention_layernorm"),
        gate_up=parameter("mlp.gate_proj", "mlp.up_proj"),
        down=parameter("mlp.down_proj"),
        norm_eps=config.rms_norm_eps,
    )
    return LayerWeights(attention, mlp)
