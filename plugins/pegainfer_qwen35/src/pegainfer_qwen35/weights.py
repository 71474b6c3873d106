"""Qwen3.5's tensors: their names in a checkpoint, and the parameters made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from pegainfer_core.backend import (
    AttentionWeights,
    DecoderWeights,
    DeltaWeights,
    DType,
    MlpWeights,
)
from pegainfer_core.weights import EMBEDDING, HEAD, NORM, TensorSpec
from pegainfer_qwen35.config import parse_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pegainfer_core.backend import Backend, Tensor
    from pegainfer_core.weights import ParameterLoader
    from pegainfer_qwen35.config import Qwen35Config

OTHER_PARTS: Final = (r"(?:model\.)?visual\.", r"mtp\.")
"""Patterns of what releases hold beside the text model: vision tower, multi-token prediction."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerWeights:
    """Parameters of one decoder layer.

    Attributes:
        mixer: What the layer mixes tokens with.
        mlp: Its MLP.
    """

    mixer: AttentionWeights | DeltaWeights
    mlp: MlpWeights


Qwen35Weights: TypeAlias = DecoderWeights[LayerWeights]


def tensor_specs(config: Mapping[str, object]) -> dict[str, TensorSpec]:
    """Every tensor that a text checkpoint with this config.json must hold, in reading order.

    Raises:
        ConfigError: The config is at fault.
    """
    return model_specs(parse_config(config))


def model_specs(config: Qwen35Config) -> dict[str, TensorSpec]:
    """Every tensor of a model."""
    hidden, vocab = config.hidden_size, config.vocab_size
    specs = {EMBEDDING: TensorSpec((vocab, hidden), "embedding")}
    for layer, is_linear in enumerate(config.linear_layers):
        prefix = f"model.layers.{layer}."
        mixer = _delta_specs(config) if is_linear else _attention_specs(config)
        specs |= {prefix + name: spec for name, spec in (mixer | _block_specs(config)).items()}
    specs[NORM] = TensorSpec((hidden,), "zero_norm")
    if not config.tied:
        specs[HEAD] = TensorSpec((vocab, hidden), "head")
    return specs


def _block_specs(config: Qwen35Config) -> dict[str, TensorSpec]:
    hidden, inner = config.hidden_size, config.intermediate_size
    return {
        "input_layernorm.weight": TensorSpec((hidden,), "zero_norm"),
        "post_attention_layernorm.weight": TensorSpec((hidden,), "zero_norm"),
        "mlp.gate_proj.weight": TensorSpec((inner, hidden)),
        "mlp.up_proj.weight": TensorSpec((inner, hidden)),
        "mlp.down_proj.weight": TensorSpec((hidden, inner)),
    }


def _attention_specs(config: Qwen35Config) -> dict[str, TensorSpec]:
    hidden, head_dim = config.hidden_size, config.head_dim
    query, key = config.num_heads * head_dim, config.num_kv_heads * head_dim
    return {
        # Of each head the queries, then the gates.
        "self_attn.q_proj.weight": TensorSpec((2 * query, hidden)),
        "self_attn.k_proj.weight": TensorSpec((key, hidden)),
        "self_attn.v_proj.weight": TensorSpec((key, hidden)),
        "self_attn.o_proj.weight": TensorSpec((hidden, query)),
        "self_attn.q_norm.weight": TensorSpec((head_dim,), "zero_norm"),
        "self_attn.k_norm.weight": TensorSpec((head_dim,), "zero_norm"),
    }


def _delta_specs(config: Qwen35Config) -> dict[str, TensorSpec]:
    hidden, delta = config.hidden_size, config.delta
    heads, values = delta.num_value_heads, delta.value_width
    return {
        "linear_attn.in_proj_qkv.weight": TensorSpec((delta.conv_width, hidden)),
        "linear_attn.in_proj_z.weight": TensorSpec((values, hidden)),
        "linear_attn.in_proj_b.weight": TensorSpec((heads, hidden)),
        "linear_attn.in_proj_a.weight": TensorSpec((heads, hidden)),
        "linear_attn.conv1d.weight": TensorSpec((delta.conv_width, 1, delta.conv_taps)),
        # Releases keep these wider than the rest.
        "linear_attn.A_log": TensorSpec((heads,), "bias", "float32"),
        "linear_attn.dt_bias": TensorSpec((heads,), "bias", "float32"),
        "linear_attn.norm.weight": TensorSpec((delta.value_dim,), "norm"),
        "linear_attn.out_proj.weight": TensorSpec((hidden, values)),
    }


class WeightReader:
    """Reads every parameter, fused the way the ops take them.

    Args:
        loader: Over `model_specs`.
        config: The model.
        backend: Where the parameters live.
        dtype: Type they are computed in.
    """

    def __init__(
        self, loader: ParameterLoader, config: Qwen35Config, backend: Backend, dtype: DType
    ) -> None:
        self._loader = loader
        self._config = config
        self._backend = backend
        self._dtype = dtype

    def read_all(self) -> Qwen35Weights:
        """Read the whole model.

        Raises:
            ConfigError: The checkpoint does not hold it.
        """
        embedding = self._load(EMBEDDING)
        layers = tuple(
            self._layer(f"model.layers.{i}.", is_linear)
            for i, is_linear in enumerate(self._config.linear_layers)
        )
        norm = self._centred_norm(NORM)
        head = embedding if self._config.tied else self._load(HEAD)
        return Qwen35Weights(embedding, layers, norm, head)

    def _layer(self, prefix: str, is_linear: bool) -> LayerWeights:
        mixer = self._delta(prefix) if is_linear else self._attention(prefix)
        mlp = MlpWeights(
            norm=self._centred_norm(f"{prefix}post_attention_layernorm.weight"),
            gate_up=self._load(f"{prefix}mlp.gate_proj.weight", f"{prefix}mlp.up_proj.weight"),
            down=self._load(f"{prefix}mlp.down_proj.weight"),
            norm_eps=self._config.rms_norm_eps,
        )
        return LayerWeights(mixer, mlp)

    def _attention(self, prefix: str) -> AttentionWeights:
        config, read = self._config, self._loader.read
        own = f"{prefix}self_attn."
        both = read(f"{own}q_proj.weight").reshape(config.num_heads, 2, config.head_dim, -1)
        queries, gates = (both[:, part].reshape(-1, config.hidden_size) for part in (0, 1))
        keys, values = read(f"{own}k_proj.weight"), read(f"{own}v_proj.weight")
        norms = [
            np.tile(1 + read(f"{own}{name}_norm.weight"), (count, 1))
            for name, count in (("q", config.num_heads), ("k", config.num_kv_heads))
        ]
        return AttentionWeights(
            input_norm=self._centred_norm(f"{prefix}input_layernorm.weight"),
            qkv=self._backend.adopt(np.concatenate([queries, keys, values, gates]), self._dtype),
            head_norm=self._backend.adopt(np.concatenate(norms), DType.FLOAT32),
            out=self._load(f"{own}o_proj.weight"),
        )

    def _delta(self, prefix: str) -> DeltaWeights:
        read, adopt = self._loader.read, self._backend.adopt
        own = f"{prefix}linear_attn."
        taps = np.ascontiguousarray(read(f"{own}conv1d.weight")[:, 0].T)
        return DeltaWeights(
            input_norm=self._centred_norm(f"{prefix}input_layernorm.weight"),
            projection=self._load(*(f"{own}in_proj_{part}.weight" for part in ("qkv", *"zba"))),
            conv=adopt(taps, self._dtype),
            decay_rate=adopt(-np.exp(read(f"{own}A_log")), DType.FLOAT32),
            decay_bias=adopt(read(f"{own}dt_bias"), DType.FLOAT32),
            norm=self._load(f"{own}norm.weight"),
            out=self._load(f"{own}out_proj.weight"),
        )

    def _load(self, *names: str) -> Tensor:
        return self._backend.load(self._loader, names, self._dtype)

    def _centred_norm(self, name: str) -> Tensor:
        """A norm's weights from their distances to one; float32, as transformers adds the one."""
        return self._backend.adopt(1 + self._loader.read(name), DType.FLOAT32)
