"""Qwen3's config.json as one checked struct, and the plan made from it and the options.

Light: imports no NumPy and opens no weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pegainfer_core.backend import choose_backend, planned_dtype
from pegainfer_core.engine import decoder_plan
from pegainfer_core.lora import with_lora
from pegainfer_core.weights import (
    ConfigError,
    FloatType,
    RopeConfig,
    attention_heads,
    bool_field,
    checkpoint_dtype,
    float_field,
    int_field,
    layer_count,
    load_config,
    require_silu,
    rope_config,
    text_config,
)
from pegainfer_qwen3.lora import lora_layout
from pegainfer_qwen3.state import kv_layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pegainfer_core.contract import LaunchContext, ServePlan


class Qwen3Config(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and settings of a dense Qwen3 model.

    Attributes:
        vocab_size: Rows of the embedding.
        hidden_size: Width of the residual stream.
        intermediate_size: Width of the MLP.
        num_layers: Decoder layers.
        num_heads: Query heads.
        num_kv_heads: Key/value heads.
        head_dim: Channels of a head; not tied to `hidden_size` / `num_heads`.
        rms_norm_eps: Epsilon of every norm.
        tied: Whether the head is the embedding.
        rope: How positions turn queries and keys.
        context_tokens: Longest context the settings allow.
        dtype: Type the model computes in; None leaves it to the tensors.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    tied: bool
    rope: RopeConfig
    context_tokens: int
    dtype: FloatType | None

    @property
    def layer_matrix_values(self) -> int:
        """Values in the matrices of all layers: what a token is multiplied with on its way."""
        attention = 2 * (self.num_heads + self.num_kv_heads) * self.head_dim
        return self.num_layers * self.hidden_size * (attention + 3 * self.intermediate_size)


def parse_config(config: Mapping[str, object]) -> Qwen3Config:
    """Check a parsed config.json and take what the model needs from it.

    Raises:
        ConfigError: A key is missing or out of range, or asks for what Qwen3 is not served with.
    """
    flat = text_config(config)
    _refuse_variants(flat)
    heads = attention_heads(flat)
    rope = rope_config(config, heads.head_dim)
    if rope.rotary_dim != heads.head_dim:
        raise ConfigError(
            f"config.json: partial_rotary_factor turns {rope.rotary_dim} of {heads.head_dim} "
            "channels; Qwen3 turns all of them"
        )
    return Qwen3Config(
        vocab_size=int_field(flat, "vocab_size"),
        hidden_size=int_field(flat, "hidden_size"),
        intermediate_size=int_field(flat, "intermediate_size"),
        num_layers=layer_count(flat),
        num_heads=heads.num_heads,
        num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim,
        rms_norm_eps=float_field(flat, "rms_norm_eps", default=1e-6),
        tied=bool_field(flat, "tie_word_embeddings", default=False),
        rope=rope,
        context_tokens=rope.context_tokens(int_field(flat, "max_position_embeddings")),
        dtype=checkpoint_dtype(config),
    )


def _refuse_variants(flat: Mapping[str, object]) -> None:
    require_silu(flat, "Qwen3")
    if bool_field(flat, "attention_bias", default=False):
        raise ConfigError("config.json: attention_bias is true, which is not supported for Qwen3")
    if bool_field(flat, "use_sliding_window", default=False):
        raise ConfigError(
            "config.json: use_sliding_window is true, which is not supported for Qwen3; "
            "set it to false to attend to the whole context"
        )
    kinds = flat.get("layer_types") or ["full_attention"]
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        raise ConfigError(
            f"config.json: layer_types is {kinds!r}; only full_attention is supported for Qwen3"
        )


def plan_qwen3(context: LaunchContext) -> ServePlan:
    """Make the plan from config.json and the options; same input, same plan.

    Raises:
        ConfigError: A key of config.json or an option makes serving impossible.
    """
    options = context.options
    config = parse_config(load_config(Path(context.model_dir)))
    backend, dtype = choose_backend(options.backend), planned_dtype(config.dtype)
    plan = decoder_plan(
        options,
        backend,
        kv_layout(config, options.kv_page_size, dtype),
        vocab_size=config.vocab_size,
        context_tokens=config.context_tokens,
        layer_matrix_values=config.layer_matrix_values,
        limit_keys="max_position_embeddings and RoPE settings",
        structured=True,
    )
    return with_lora(plan, options, lora_layout(config), backend, dtype)
