"""Qwen3.5's config.json as one checked struct, and the plan made from it and the options.

Light: imports no NumPy and opens no weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pegainfer_core.backend import choose_backend, planned_dtype
from pegainfer_core.engine import decoder_plan
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
    require_multiple,
    require_silu,
    rope_config,
    text_config,
)
from pegainfer_qwen35.options import Qwen35Options
from pegainfer_qwen35.state import kv_layout, num_snapshots, state_layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pegainfer_core.contract import LaunchContext, ServePlan

LINEAR: Final = "linear_attention"
FULL: Final = "full_attention"

_MAX_CONV_TAPS: Final = 64
_MAX_DELTA_SIZE: Final = 1 << 12
_CHUNK_TOKENS: Final = 64
_DELTA_SLOWNESS: Final = 2
"""Measured on two AVX2 cores: small products and what lies between them, against large ones."""

_PARTIAL_ROTARY_FACTOR: Final = 0.25
_FULL_ATTENTION_INTERVAL: Final = 4


class DeltaSizes(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of the gated delta-rule layers.

    Attributes:
        num_key_heads: Query heads, and as many key heads.
        num_value_heads: Value heads, a multiple of `num_key_heads`.
        key_dim: Channels of a query or key head.
        value_dim: Channels of a value head.
        conv_taps: Tokens that the convolution sees, the current one included.
    """

    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    conv_taps: int

    @property
    def conv_width(self) -> int:
        """Channels of the convolution: queries, keys, values."""
        return 2 * self.num_key_heads * self.key_dim + self.value_width

    @property
    def value_width(self) -> int:
        """Channels of a layer's output before its projection."""
        return self.num_value_heads * self.value_dim


class Qwen35Config(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and settings of a dense Qwen3.5 text model.

    Attributes:
        vocab_size: Rows of the embedding.
        hidden_size: Width of the residual stream.
        intermediate_size: Width of the MLP.
        linear_layers: For every decoder layer, whether it is a delta-rule layer.
        num_heads: Query heads of attention layers.
        num_kv_heads: Their key/value heads.
        head_dim: Channels of such a head.
        delta: Sizes of the delta-rule layers.
        rms_norm_eps: Epsilon of every norm.
        tied: Whether the head is the embedding.
        rope: How positions turn queries and keys.
        context_tokens: Longest context the settings allow.
        dtype: Type the model computes in; None leaves it to the tensors.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    linear_layers: tuple[bool, ...]
    num_heads: int
    num_kv_heads: int
    head_dim: int
    delta: DeltaSizes
    rms_norm_eps: float
    tied: bool
    rope: RopeConfig
    context_tokens: int
    dtype: FloatType | None

    @property
    def num_linear_layers(self) -> int:
        """Delta-rule layers."""
        return sum(self.linear_layers)

    @property
    def num_full_layers(self) -> int:
        """Attention layers."""
        return len(self.linear_layers) - self.num_linear_layers

    @property
    def layer_matrix_values(self) -> int:
        """Values in the matrices of all layers: what a token is multiplied with on its way."""
        delta = self.delta
        linear = delta.conv_width + 2 * delta.value_width + 2 * delta.num_value_heads
        full = (3 * self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        mixers = self.num_linear_layers * linear + self.num_full_layers * full
        mlps = 3 * len(self.linear_layers) * self.intermediate_size
        return self.hidden_size * (mixers + mlps)

    @property
    def delta_work_values(self) -> int:
        """What the delta rule adds to that for a prompt's token, in values that take as long."""
        delta = self.delta
        memory = 4 * delta.key_dim * delta.value_dim
        chunk = 2 * _CHUNK_TOKENS * (delta.key_dim + delta.value_dim)
        heads = self.num_linear_layers * delta.num_value_heads
        return _DELTA_SLOWNESS * heads * (memory + chunk)


def parse_config(config: Mapping[str, object]) -> Qwen35Config:
    """Check a parsed config.json and take what the text model needs from it.

    Raises:
        ConfigError: A key is missing or out of range, or asks for what Qwen3.5 is not served with.
    """
    flat = text_config(config)
    _refuse_variants(flat)
    heads = attention_heads(flat)
    rope = rope_config(config, heads.head_dim, default_partial_rotary_factor=_PARTIAL_ROTARY_FACTOR)
    return Qwen35Config(
        vocab_size=int_field(flat, "vocab_size"),
        hidden_size=int_field(flat, "hidden_size"),
        intermediate_size=int_field(flat, "intermediate_size"),
        linear_layers=_linear_layers(flat),
        num_heads=heads.num_heads,
        num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim,
        delta=_delta_sizes(flat),
        rms_norm_eps=float_field(flat, "rms_norm_eps", default=1e-6),
        tied=_tied(config, flat),
        rope=rope,
        context_tokens=rope.context_tokens(int_field(flat, "max_position_embeddings")),
        dtype=checkpoint_dtype(config),
    )


def plan_qwen35(context: LaunchContext) -> ServePlan:
    """Make the plan from config.json and the options; same input, same plan.

    Raises:
        ConfigError: A key of config.json or an option makes serving impossible.
    """
    options = context.options
    raw_config = load_config(Path(context.model_dir))
    config = parse_config(raw_config)
    backend = choose_backend(options.backend)
    dtype = planned_dtype(config.dtype)
    own = msgspec.convert(context.family_options, Qwen35Options)
    # Asked for now, because a size that holds nothing should not wait for the weights.
    kept = num_snapshots(state_layout(config, dtype), options, own, backend)
    if options.kv_offload is not None and not kept:
        raise ConfigError(
            f"--kv-offload {options.kv_offload} needs recurrent states to save with the pages; "
            "raise --state-cache-gib, or leave --kv-offload out"
        )
    plan = decoder_plan(
        options,
        backend,
        kv_layout(config, options.kv_page_size, dtype),
        vocab_size=config.vocab_size,
        context_tokens=config.context_tokens,
        layer_matrix_values=config.layer_matrix_values + config.delta_work_values,
        limit_keys="max_position_embeddings and RoPE settings",
        structured=True,
    )
    return msgspec.structs.replace(plan, notes=plan.notes + _skipped_parts(raw_config))


def _skipped_parts(config: Mapping[str, object]) -> list[str]:
    """What to tell about parts of a release that are not served."""
    parts = []
    if "vision_config" in config:
        parts.append("the vision tower (images are refused)")
    if int_field(text_config(config), "mtp_num_hidden_layers", default=0, minimum=0):
        parts.append("multi-token prediction")
    return [f"only the text model is served, without {' and '.join(parts)}"] if parts else []


def _refuse_variants(flat: Mapping[str, object]) -> None:
    require_silu(flat, "Qwen3.5")
    for key, wanted in (("attention_bias", False), ("attn_output_gate", True)):
        if bool_field(flat, key, default=wanted) is not wanted:
            raise ConfigError(
                f"config.json: {key} is {str(not wanted).lower()}, which is not supported for "
                "Qwen3.5"
            )
    state_dtype = flat.get("mamba_ssm_dtype")
    if state_dtype not in (None, "float32"):
        raise ConfigError(
            f"config.json: mamba_ssm_dtype is {state_dtype!r}; the recurrent state of Qwen3.5 is "
            "kept in 'float32'"
        )


def _linear_layers(flat: Mapping[str, object]) -> tuple[bool, ...]:
    """From `layer_types`, or every so many layers from `full_attention_interval`."""
    num_layers = layer_count(flat)
    kinds = flat.get("layer_types")
    if kinds is None:
        interval = int_field(flat, "full_attention_interval", default=_FULL_ATTENTION_INTERVAL)
        linear = tuple((i + 1) % interval != 0 for i in range(num_layers))
    else:
        if not isinstance(kinds, list) or any(kind not in (LINEAR, FULL) for kind in kinds):
            raise ConfigError(
                f"config.json: layer_types is {kinds!r}; Qwen3.5 has {LINEAR!r} and {FULL!r}"
            )
        if len(kinds) != num_layers:
            raise ConfigError(
                f"config.json: layer_types names {len(kinds)} layers, num_hidden_layers is "
                f"{num_layers}"
            )
        linear = tuple(kind == LINEAR for kind in kinds)
    if all(linear) or not any(linear):
        raise ConfigError(
            f"config.json: all {num_layers} layers are {LINEAR if linear[0] else FULL}; Qwen3.5 "
            "has layers of both kinds"
        )
    return linear


def _delta_sizes(flat: Mapping[str, object]) -> DeltaSizes:
    key_heads = int_field(flat, "linear_num_key_heads", maximum=_MAX_DELTA_SIZE)
    value_heads = int_field(flat, "linear_num_value_heads", maximum=_MAX_DELTA_SIZE)
    require_multiple("linear_num_value_heads", value_heads, "linear_num_key_heads", key_heads)
    return DeltaSizes(
        num_key_heads=key_heads,
        num_value_heads=value_heads,
        key_dim=int_field(flat, "linear_key_head_dim", maximum=_MAX_DELTA_SIZE),
        value_dim=int_field(flat, "linear_value_head_dim", maximum=_MAX_DELTA_SIZE),
        conv_taps=int_field(
            flat, "linear_conv_kernel_dim", default=4, minimum=2, maximum=_MAX_CONV_TAPS
        ),
    )


def _tied(config: Mapping[str, object], flat: Mapping[str, object]) -> bool:
    """Of a nested config the outer word holds, for the head is the outer model's."""
    outer = config if config.get("tie_word_embeddings") is not None else flat
    return bool_field(outer, "tie_word_embeddings", default=False)
