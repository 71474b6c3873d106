"""A tiny Qwen3.5 checkpoint whose random values would show a wrong implementation.

As in Qwen3's, norms are spread and logits apart. Memories forget within some ten tokens: what is
read from them depends on decay, on the order of updates and on the convolution.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pegainfer_core.testing.tiny.folder import JsonObject, write_folder
from pegainfer_core.testing.tiny.values import seeded_values
from pegainfer_core.weights import FloatArray, FloatType

__all__ = ["tiny_qwen35"]

_NORM_STD: Final = 0.2
_HEAD_STD: Final = 0.35
_TIED_STD: Final = 0.2
_LEAST_MATRIX_STD: Final = 0.08
_VISION_WIDTH: Final = 16

#: How much of the residual stream a deep model's matrices add, by the end of their names: without
#: the gain attention would add less than the rest, for it takes means and gates them.
_ADDED: Final[Mapping[str, float]] = {
    "o_proj.weight": 1.5,
    "out_proj.weight": 0.5,
    "down_proj.weight": 0.5,
}
#: Attention that looks at few tokens, so that their places and its norms matter.
_DEEP_HEAD_NORMS: Final = (0.5, 0.3)

#: Mean and deviation by the end of a tensor's name.
_SPREADS: Final[Mapping[str, tuple[float, float]]] = {
    "linear_attn.A_log": (-0.5, 0.5),
    "linear_attn.dt_bias": (-1.5, 0.5),
    "linear_attn.conv1d.weight": (0.0, 0.5),
    "linear_attn.norm.weight": (1.0, _NORM_STD),
}


def tiny_qwen35(
    model_dir: Path,
    *,
    hidden: int = 128,
    intermediate: int = 256,
    kinds: str = "LLF",
    heads: tuple[int, int] = (2, 1),
    head_dim: int = 32,
    linear_heads: tuple[int, int] = (2, 4),
    linear_dims: tuple[int, int] = (32, 32),
    conv_taps: int = 4,
    vocab: int = 1000,
    tied: bool = False,
    dtype: FloatType = "float32",
    rope_theta: float = 1_000_000.0,
    partial_rotary_factor: float = 0.5,
    eps: float = 1e-6,
    deep: bool = False,
    max_position_embeddings: int = 8192,
    nested: bool = False,
    shards: int = 1,
    eos_token_ids: Sequence[int] = (256,),
    generation_config: Mapping[str, object] | None = None,
    chat_template: str | None = None,
    seed: int = 0,
) -> Path:
    """Write a whole checkpoint folder: config, generation config, weights, byte tokenizer.

    Args:
        model_dir: The folder; made if missing, must hold no weights.
        hidden: Width of the residual stream.
        intermediate: Width of the MLP.
        kinds: The layers in order: L for a delta rule, F for full attention.
        heads: Query and key/value heads of attention.
        head_dim: Channels of such a head.
        linear_heads: Key and value heads of the delta rule.
        linear_dims: Channels of such a key and of such a value.
        conv_taps: Tokens that the convolution sees.
        vocab: Rows of the embedding, no power of two on purpose; the tokenizer needs 261.
        tied: No head of its own; the embedding is the head.
        dtype: How the weights are stored and what config.json says.
        rope_theta: Base of the positions.
        partial_rotary_factor: Share of a head's channels that positions turn.
        eps: Of all norms. A large one shows whether it is added in the right place.
        deep: For many and wide layers: each adds little to the residual stream, so that rounding
            errors do not grow on their way, and attention looks at few tokens.
        max_position_embeddings: Context in tokens.
        nested: As releases are: the text model under `text_config` and `model.language_model.`,
            beside tensors of a vision tower and of multi-token prediction.
        shards: Weight files.
        eos_token_ids: End tokens of config.json.
        generation_config: Content of generation_config.json; None for just the end tokens.
        chat_template: Goes into tokenizer_config.json.
        seed: Of the weights.

    Returns:
        The folder.

    Raises:
        ConfigError: The folder already holds weights.
    """
    names = {"L": "linear_attention", "F": "full_attention"}
    config: JsonObject = {
        "architectures": ["Qwen3_5ForCausalLM"],
        "attention_bias": False,
        "bos_token_id": None,
        "dtype": dtype,
        "eos_token_id": eos_token_ids[0] if len(eos_token_ids) == 1 else list(eos_token_ids),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "layer_types": [names[kind] for kind in kinds],
        "linear_conv_kernel_dim": conv_taps,
        "linear_key_head_dim": linear_dims[0],
        "linear_num_key_heads": linear_heads[0],
        "linear_num_value_heads": linear_heads[1],
        "linear_value_head_dim": linear_dims[1],
        "max_position_embeddings": max_position_embeddings,
        "model_type": "qwen3_5_text",
        "num_attention_heads": heads[0],
        "num_hidden_layers": len(kinds),
        "num_key_value_heads": heads[1],
        "pad_token_id": None,
        "rms_norm_eps": eps,
        "rope_parameters": _rope(rope_theta, partial_rotary_factor, head_dim),
        "tie_word_embeddings": tied,
        "vocab_size": vocab,
    }
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    linear = _linear_shapes(hidden, linear_heads, linear_dims, conv_taps)
    full = _full_shapes(hidden, heads, head_dim)
    for layer, kind in enumerate(kinds):
        one_layer = (linear if kind == "L" else full) | _block_shapes(hidden, intermediate)
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in one_layer.items()}
    if not tied:
        shapes["lm_head.weight"] = (vocab, hidden)
    num_added = 2 * len(kinds) if deep else 0
    tensors = {
        name: seeded_values(name, shape, *_spread(name, shape, tied, num_added), dtype, seed)
        for name, shape in shapes.items()
    }
    end_tokens: JsonObject = {"eos_token_id": list(eos_token_ids)}
    return write_folder(
        model_dir,
        _nested_config(config) if nested else config,
        _nested_tensors(tensors, dtype) if nested else tensors,
        dtype=dtype,
        num_shards=shards,
        generation_config=end_tokens if generation_config is None else generation_config,
        chat_template=chat_template,
    )


def _rope(theta: float, partial_rotary_factor: float, head_dim: int) -> JsonObject:
    pairs = int(head_dim * partial_rotary_factor) // 2
    side = pairs // 3
    return {
        "mrope_interleaved": True,
        "mrope_section": [pairs - 2 * side, side, side],
        "partial_rotary_factor": partial_rotary_factor,
        "rope_theta": theta,
        "rope_type": "default",
    }


def _linear_shapes(
    hidden: int, heads: tuple[int, int], dims: tuple[int, int], conv_taps: int
) -> dict[str, tuple[int, ...]]:
    key, value = heads[0] * dims[0], heads[1] * dims[1]
    return {
        "linear_attn.in_proj_qkv.weight": (2 * key + value, hidden),
        "linear_attn.in_proj_z.weight": (value, hidden),
        "linear_attn.in_proj_b.weight": (heads[1], hidden),
        "linear_attn.in_proj_a.weight": (heads[1], hidden),
        "linear_attn.conv1d.weight": (2 * key + value, 1, conv_taps),
        "linear_attn.A_log": (heads[1],),
        "linear_attn.dt_bias": (heads[1],),
        "linear_attn.norm.weight": (dims[1],),
        "linear_attn.out_proj.weight": (hidden, value),
    }


def _full_shapes(hidden: int, heads: tuple[int, int], head_dim: int) -> dict[str, tuple[int, ...]]:
    query, key = heads[0] * head_dim, heads[1] * head_dim
    return {
        "self_attn.q_proj.weight": (2 * query, hidden),
        "self_attn.k_proj.weight": (key, hidden),
        "self_attn.v_proj.weight": (key, hidden),
        "self_attn.q_norm.weight": (head_dim,),
        "self_attn.k_norm.weight": (head_dim,),
        "self_attn.o_proj.weight": (hidden, query),
    }


def _block_shapes(hidden: int, intermediate: int) -> dict[str, tuple[int, ...]]:
    return {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (intermediate, hidden),
        "mlp.up_proj.weight": (intermediate, hidden),
        "mlp.down_proj.weight": (hidden, intermediate),
    }


def _spread(name: str, shape: tuple[int, ...], tied: bool, num_added: int) -> tuple[float, float]:
    """Mean and deviation of a tensor's values; `num_added` as for `deep`, 0 for shallow ones."""
    spread = next((s for end, s in _SPREADS.items() if name.endswith(end)), None)
    if spread is not None:
        return spread
    if num_added and name.endswith(("q_norm.weight", "k_norm.weight")):
        return _DEEP_HEAD_NORMS
    if len(shape) == 1:
        # Kept as the distance from one.
        return 0.0, _NORM_STD
    if name == "lm_head.weight":
        return 0.0, _HEAD_STD
    if name == "model.embed_tokens.weight":
        return 0.0, _TIED_STD if tied else 1.0
    if not num_added:
        return 0.0, max(_LEAST_MATRIX_STD, shape[-1] ** -0.5)
    share = next((share for end, share in _ADDED.items() if name.endswith(end)), None)
    return 0.0, shape[-1] ** -0.5 * (1.0 if share is None else share * num_added**-0.5)


def _nested_config(config: JsonObject) -> JsonObject:
    outer: JsonObject = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "dtype": config["dtype"],
        "eos_token_id": config["eos_token_id"],
        "image_token_id": 258,
        "model_type": "qwen3_5",
        "text_config": config | {"mtp_num_hidden_layers": 1},
        "tie_word_embeddings": config["tie_word_embeddings"],
        "vision_config": {"depth": 1, "hidden_size": _VISION_WIDTH},
    }
    return outer


def _nested_tensors(tensors: Mapping[str, FloatArray], dtype: FloatType) -> dict[str, FloatArray]:
    nested = {
        name.replace("model.", "model.language_model.", 1): tensor
        for name, tensor in tensors.items()
    }
    for name in ("model.visual.blocks.0.norm1.weight", "mtp.fc.weight", "mtp.norm.weight"):
        nested[name] = seeded_values(name, (_VISION_WIDTH,), 0.0, 1.0, dtype, 0)
    return nested
