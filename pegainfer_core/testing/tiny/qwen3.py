"""A tiny Qwen3 checkpoint whose random values would show a wrong implementation.

Usual initial values hide faults: norm weights of one, and logits so close that rounding decides.
Here norms are spread, attention is neither flat nor one-hot, and logits have a deviation of two to
four.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from pegainfer_core.testing.tiny.folder import JsonObject, old_spelling, write_folder
from pegainfer_core.testing.tiny.values import seeded_values
from pegainfer_core.weights import FloatArray, FloatType

__all__ = ["RopeKind", "tiny_qwen3"]

RopeKind = Literal["plain", "linear", "yarn"]

#: The yarn ramp falls inside the few channels that turn visibly within a short prompt.
_SCALINGS: Final[Mapping[RopeKind, JsonObject]] = {
    "plain": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
}
_NORM_STD: Final = 0.2
_HEAD_STD: Final = 0.35
#: Narrower, or a token would mostly predict itself and greedy paths would stand still.
_TIED_STD: Final = 0.2


def tiny_qwen3(
    model_dir: Path,
    *,
    hidden: int = 128,
    intermediate: int = 256,
    layers: int = 2,
    heads: tuple[int, int] = (4, 2),
    head_dim: int = 32,
    vocab: int = 1000,
    tied: bool = False,
    dtype: FloatType = "float32",
    rope: RopeKind = "plain",
    rope_theta: float = 1_000_000.0,
    eps: float = 1e-6,
    max_position_embeddings: int = 4096,
    shards: int = 1,
    old_style_config: bool = False,
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
        layers: Number of layers.
        heads: Query and key/value heads.
        head_dim: Channels of a head; need not be `hidden / heads`.
        vocab: Rows of the embedding, no power of two on purpose; the tokenizer needs 261.
        tied: No head of its own; the embedding is the head.
        dtype: How the weights are stored and what config.json says.
        rope: Scaling of the positions.
        rope_theta: Base of the positions.
        eps: Of all norms. A large one shows whether it is added in the right place.
        max_position_embeddings: Context in tokens.
        shards: Weight files.
        old_style_config: Spell config.json as before transformers 5.
        eos_token_ids: End tokens of config.json.
        generation_config: Content of generation_config.json; None for just the end tokens.
        chat_template: Goes into tokenizer_config.json.
        seed: Of the weights.

    Returns:
        The folder.

    Raises:
        ConfigError: The folder already holds weights.
    """
    config: JsonObject = {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "dtype": dtype,
        "eos_token_id": eos_token_ids[0] if len(eos_token_ids) == 1 else list(eos_token_ids),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "max_position_embeddings": max_position_embeddings,
        "model_type": "qwen3",
        "num_attention_heads": heads[0],
        "num_hidden_layers": layers,
        "num_key_value_heads": heads[1],
        "rms_norm_eps": eps,
        "rope_parameters": {"rope_theta": rope_theta, **_SCALINGS[rope]},
        "tie_word_embeddings": tied,
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": vocab,
    }
    shapes = _shapes(hidden, intermediate, layers, heads, head_dim, vocab, tied)
    tensors = {name: _values(name, shape, tied, dtype, seed) for name, shape in shapes.items()}
    end_tokens: JsonObject = {"eos_token_id": list(eos_token_ids)}
    return write_folder(
        model_dir,
        old_spelling(config) if old_style_config else config,
        tensors,
        dtype=dtype,
        num_shards=shards,
        generation_config=end_tokens if generation_config is None else generation_config,
        chat_template=chat_template,
    )


def _shapes(
    hidden: int,
    intermediate: int,
    layers: int,
    heads: tuple[int, int],
    head_dim: int,
    vocab: int,
    tied: bool,
) -> dict[str, tuple[int, ...]]:
    query, key_value = heads[0] * head_dim, heads[1] * head_dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden)}
    for layer in range(layers):
        one_layer: dict[str, tuple[int, ...]] = {
            "input_layernorm": (hidden,),
            "self_attn.q_proj": (query, hidden),
            "self_attn.k_proj": (key_value, hidden),
            "self_attn.v_proj": (key_value, hidden),
            "self_attn.q_norm": (head_dim,),
            "self_attn.k_norm": (head_dim,),
            "self_attn.o_proj": (hidden, query),
            "post_attention_layernorm": (hidden,),
            "mlp.gate_proj": (intermediate, hidden),
            "mlp.up_proj": (intermediate, hidden),
            "mlp.down_proj": (hidden, intermediate),
        }
        shapes |= {f"model.layers.{layer}.{name}.weight": s for name, s in one_layer.items()}
    shapes["model.norm.weight"] = (hidden,)
    if not tied:
        shapes["lm_head.weight"] = (vocab, hidden)
    return shapes


def _values(
    name: str, shape: tuple[int, ...], tied: bool, dtype: FloatType, seed: int
) -> FloatArray:
    if len(shape) == 1:
        mean, std = 1.0, _NORM_STD
    elif name == "lm_head.weight":
        mean, std = 0.0, _HEAD_STD
    elif name == "model.embed_tokens.weight":
        mean, std = 0.0, _TIED_STD if tied else 1.0
    else:
        # Wider than 1/sqrt(fan_in) for wide inputs, so that every block moves the result.
        mean, std = 0.0, max(0.08, shape[-1] ** -0.5)
    return seeded_values(name, shape, mean, std, dtype, seed)
