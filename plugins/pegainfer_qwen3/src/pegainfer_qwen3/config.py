"""Qwen3's config.json as one checked struct, and the plan made from it and the options.

Light: imports no NumPy and opens no weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pegainfer_core.backend import choose_backend
from pegainfer_core.contract import ServePlan
from pegainfer_core.weights import (
    ConfigError,
    FloatType,
    RopeConfig,
    bool_field,
    checkpoint_dtype,
    float_field,
    int_field,
    load_config,
    rope_config,
    text_config,
)
from pegainfer_qwen3.state import default_num_pages, kv_layout, planned_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pegainfer_core.backend import BackendName, KvLayout
    from pegainfer_core.contract import CoreOptions, LaunchContext

_STEP_S: Final = 0.49
"""Time that the prompt tokens of one step may take, so that a step stays below half a second."""

# Measured on two AVX2 cores: a matrix product repacks its weights, whatever the number of rows,
# and then computes at the rate of a large product.
_REPACK_S: Final = 0.5e-9
"""Seconds for each weight."""
_FLOPS: Final = 80e9
"""Floating-point operations a second."""

_MIN_PREFILL_TOKENS: Final = 8
_CUDA_PREFILL_TOKENS: Final = 8192
_MAX_PREFILL_TOKENS: Final = 2048
#: Far beyond any model; a slip in the file must not become minutes of work.
_MAX_LAYERS: Final = 10_000


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
    hidden_size = int_field(flat, "hidden_size")
    num_heads = int_field(flat, "num_attention_heads")
    num_kv_heads = int_field(flat, "num_key_value_heads", default=num_heads)
    if num_heads % num_kv_heads:
        raise ConfigError(
            f"config.json: num_attention_heads {num_heads} is not a multiple of "
            f"num_key_value_heads {num_kv_heads}"
        )
    head_dim = int_field(flat, "head_dim", default=max(hidden_size // num_heads, 1), minimum=2)
    rope = rope_config(config, head_dim)
    if rope.rotary_dim != head_dim:
        raise ConfigError(
            f"config.json: partial_rotary_factor turns {rope.rotary_dim} of {head_dim} channels; "
            "Qwen3 turns all of them"
        )
    return Qwen3Config(
        vocab_size=int_field(flat, "vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=int_field(flat, "intermediate_size"),
        num_layers=int_field(flat, "num_hidden_layers", maximum=_MAX_LAYERS),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_norm_eps=float_field(flat, "rms_norm_eps", default=1e-6),
        tied=bool_field(flat, "tie_word_embeddings", default=False),
        rope=rope,
        context_tokens=_context_tokens(flat, rope),
        dtype=checkpoint_dtype(config),
    )


def _refuse_variants(flat: Mapping[str, object]) -> None:
    activation = flat.get("hidden_act") or "silu"
    if activation != "silu":
        raise ConfigError(f"config.json: hidden_act is {activation!r}; Qwen3 is served with 'silu'")
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


def _context_tokens(flat: Mapping[str, object], rope: RopeConfig) -> int:
    """The context that positions are scaled for.

    `max_position_embeddings` of a YaRN release still counts the context before the extension, so
    the original context times the factor is what holds (vLLM's rule).
    """
    stated = int_field(flat, "max_position_embeddings")
    if rope.rope_type == "yarn":
        return int(rope.original_max_position_embeddings * rope.factor)
    return int(stated * rope.factor)


def plan_qwen3(context: LaunchContext) -> ServePlan:
    """Make the plan from config.json and the options; same input, same plan.

    Raises:
        ConfigError: A key of config.json or an option makes serving impossible.
    """
    options = context.options
    config = parse_config(load_config(Path(context.model_dir)))
    backend = choose_backend(options.backend)
    layout = kv_layout(config, options.kv_page_size, planned_dtype(config))
    max_model_len, num_pages, notes = _context_and_pages(config, options, layout, backend)
    return ServePlan(
        max_model_len=max_model_len,
        vocab_size=config.vocab_size,
        backend=backend,
        page_tokens=options.kv_page_size,
        num_pages=num_pages,
        max_num_seqs=options.max_num_seqs,
        max_prefill_tokens=_max_prefill_tokens(config, options, backend),
        itl_target_s=_itl_target_s(options),
        notes=notes,
    )


def _context_and_pages(
    config: Qwen3Config, options: CoreOptions, layout: KvLayout, backend: BackendName
) -> tuple[int, int | None, list[str]]:
    """Context in tokens, pages that requests can use, and what to tell about them.

    Without a given number, CUDA takes as many pages as fit once the weights are loaded: None.
    """
    asked, limit = options.max_model_len, config.context_tokens
    if asked is not None and not 2 <= asked <= limit:
        raise ConfigError(
            f"--max-model-len {asked} must be from 2 to {limit}: the config's "
            "max_position_embeddings and RoPE settings allow no more"
        )
    context_tokens = limit if asked is None else asked
    num_pages = options.num_kv_pages
    if num_pages is None and backend == "cuda":
        return context_tokens, None, []
    if num_pages is None:
        num_pages = default_num_pages(layout, context_tokens)
        if asked is not None:
            num_pages = max(num_pages, layout.pages_for(asked))
    elif num_pages < 1:
        raise ConfigError(f"--num-kv-pages {num_pages} must be at least 1")
    held = num_pages * layout.page_tokens
    if context_tokens <= held:
        return context_tokens, num_pages, []
    if asked is not None:
        raise ConfigError(
            f"--max-model-len {asked} needs {layout.pages_for(asked)} KV pages of "
            f"{layout.page_tokens} tokens, but --num-kv-pages is {num_pages}; raise it or lower "
            f"--max-model-len to {held}"
        )
    pool_gib = num_pages * layout.page_bytes / 2**30
    note = (
        f"context limited to {held} tokens (the model allows {limit}): {num_pages} KV pages, "
        f"{pool_gib:.1f} GiB; --max-model-len or --num-kv-pages changes that"
    )
    return held, num_pages, [note]


def _itl_target_s(options: CoreOptions) -> float | None:
    target_ms = options.itl_target_ms
    if target_ms is None:
        return None
    if not target_ms > 0:
        raise ConfigError(f"--itl-target-ms {target_ms} must be more than 0")
    return target_ms / 1e3


def _max_prefill_tokens(config: Qwen3Config, options: CoreOptions, backend: BackendName) -> int:
    asked = options.max_prefill_tokens
    if asked is not None:
        if asked < 1:
            raise ConfigError(f"--max-prefill-tokens {asked} must be at least 1")
        return asked
    if backend == "cuda":
        return _CUDA_PREFILL_TOKENS
    seconds_a_weight = _STEP_S / config.layer_matrix_values
    affordable = int((seconds_a_weight - _REPACK_S) * _FLOPS / 2)
    rounded = affordable // _MIN_PREFILL_TOKENS * _MIN_PREFILL_TOKENS
    return min(max(rounded, _MIN_PREFILL_TOKENS), _MAX_PREFILL_TOKENS)
