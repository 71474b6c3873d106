"""A second Qwen3 forward in plain NumPy, to check goldens without torch.

Shares nothing with the engine but the reader of weights. One prompt at a time, no cache; float64
for float32 checkpoints, and for bfloat16 ones float64 rounded to bfloat16 where the reference
implementation rounds.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import numpy as np

from pegainfer_core.weights import Checkpoint, round_floats

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[np.float64]


class ReferenceQwen3:
    """Weights and config of a checkpoint; both may be changed to see what a mistake costs.

    Attributes:
        config: Parsed config.json.
        weights: Tensor name to float64 array.
        inverse_frequencies: Radians per position, [head_dim / 2].
        attention_factor: What cos and sin are multiplied by.
        rounds: Whether values are rounded to bfloat16 on the way.
    """

    def __init__(self, model_dir: Path, *, rounds: bool | None = None) -> None:
        self.config = json.loads((model_dir / "config.json").read_text())
        with Checkpoint(model_dir) as checkpoint:
            self.weights: dict[str, Array] = {
                name: checkpoint.read_f32(name).astype(np.float64) for name in checkpoint.names()
            }
        hidden, heads = self.config["hidden_size"], self.config["num_attention_heads"]
        self.head_dim = self.config.get("head_dim") or hidden // heads
        self.inverse_frequencies, self.attention_factor = _frequencies(self.config, self.head_dim)
        stored = self.config.get("dtype") or self.config.get("torch_dtype")
        self.rounds = stored == "bfloat16" if rounds is None else rounds

    def logits(self, token_ids: NDArray[np.integer] | list[int]) -> Array:
        """Logits of every position, [n, vocab]."""
        embedding = self.weights["model.embed_tokens.weight"]
        hidden = embedding[np.asarray(token_ids)]
        for layer in range(self.config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            normed = self._norm(hidden, self.weights[f"{prefix}input_layernorm.weight"])
            hidden = self._round(hidden + self._attention(normed, f"{prefix}self_attn."))
            normed = self._norm(hidden, self.weights[f"{prefix}post_attention_layernorm.weight"])
            hidden = self._round(hidden + self._mlp(normed, f"{prefix}mlp."))
        hidden = self._norm(hidden, self.weights["model.norm.weight"])
        return self._round(hidden @ self.weights.get("lm_head.weight", embedding).T)

    def _attention(self, inputs: Array, prefix: str) -> Array:
        num_tokens = len(inputs)
        query, key, value = (
            self._linear(inputs, f"{prefix}{name}_proj").reshape(num_tokens, -1, self.head_dim)
            for name in "qkv"
        )
        query = self._rotate(self._norm(query, self.weights[f"{prefix}q_norm.weight"]))
        key = self._rotate(self._norm(key, self.weights[f"{prefix}k_norm.weight"]))
        group = query.shape[1] // key.shape[1]
        future = np.triu(np.full((num_tokens, num_tokens), -np.inf), 1)
        outputs = np.empty_like(query)
        for head in range(query.shape[1]):
            scores = self._round(query[:, head] @ key[:, head // group].T)
            scores = self._round(scores * self.head_dim**-0.5) + future
            share = np.exp(scores - scores.max(axis=-1, keepdims=True))
            share = self._round(share / share.sum(axis=-1, keepdims=True))
            outputs[:, head] = self._round(share @ value[:, head // group])
        return self._linear(outputs.reshape(num_tokens, -1), f"{prefix}o_proj")

    def _mlp(self, inputs: Array, prefix: str) -> Array:
        gate = self._linear(inputs, f"{prefix}gate_proj")
        gate = self._round(gate / (1 + np.exp(-gate)))
        product = self._round(gate * self._linear(inputs, f"{prefix}up_proj"))
        return self._linear(product, f"{prefix}down_proj")

    def _linear(self, inputs: Array, name: str) -> Array:
        return self._round(inputs @ self.weights[f"{name}.weight"].T)

    def _norm(self, inputs: Array, weight: Array) -> Array:
        mean_square = (inputs**2).mean(axis=-1, keepdims=True)
        normed = self._round(inputs / np.sqrt(mean_square + self.config["rms_norm_eps"]))
        return self._round(weight * normed)

    def _rotate(self, heads: Array) -> Array:
        """Turn channels i and i + head_dim/2 against each other; heads is [n, heads, head_dim]."""
        angle = np.arange(len(heads))[:, None, None] * self.inverse_frequencies
        cos = self._round(np.cos(angle) * self.attention_factor)
        sin = self._round(np.sin(angle) * self.attention_factor)
        left, right = np.split(heads, 2, axis=-1)
        turned = np.concatenate(
            [
                self._round(left * cos) + self._round(-right * sin),
                self._round(right * cos) + self._round(left * sin),
            ],
            axis=-1,
        )
        return self._round(turned)

    def _round(self, values: Array) -> Array:
        if not self.rounds:
            return values
        rounded = values.astype(np.float32)
        round_floats(rounded, "bfloat16")
        return rounded.astype(np.float64)


def _frequencies(config: dict[str, object], head_dim: int) -> tuple[Array, float]:
    """Inverse frequencies and cos/sin factor, from either spelling of config.json."""
    settings = config.get("rope_parameters") or config.get("rope_scaling") or {}
    assert isinstance(settings, dict)
    kind = settings.get("rope_type") or settings.get("type") or "default"
    theta = float(settings.get("rope_theta") or config.get("rope_theta") or 10_000)
    pair = np.arange(head_dim // 2)
    plain = theta ** (-2 * pair / head_dim)
    if kind == "default":
        return plain, 1.0
    factor = settings["factor"]
    if kind == "linear":
        return plain / factor, 1.0
    assert kind == "yarn"
    original = settings["original_max_position_embeddings"]
    turns = original * plain / (2 * math.pi)
    # The pair at which a frequency makes a given number of turns in the original context.
    first, last = (np.interp(-math.log(wanted), -np.log(turns), pair) for wanted in (32.0, 1.0))
    low, high = math.floor(first), math.ceil(last)
    share = np.clip((pair - low) / (high - low), 0, 1)
    return plain * (1 - share + share / factor), 0.1 * math.log(factor) + 1
