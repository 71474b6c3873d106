"""Sizes of a decoder whose ops are timed, from a config.json or those of Qwen3-4B."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from pegainfer_core.backend import AttentionShape
from pegainfer_core.weights import (
    FloatType,
    checkpoint_dtype,
    float_field,
    int_field,
    load_config,
    resolve_model_dir,
    text_config,
)


class DecoderSizes(msgspec.Struct, frozen=True, kw_only=True):
    """A dense decoder with grouped-query attention and a gated MLP.

    Attributes:
        name: For headings.
        hidden: Width of the residual stream.
        intermediate: Width of the MLP.
        num_heads: Query heads.
        num_kv_heads: Key/value heads.
        head_dim: Channels of a head.
        num_layers: Layers.
        vocab_size: Rows of the head.
        norm_eps: Epsilon of the norms.
        stored: Type of the checkpoint.
    """

    name: str
    hidden: int
    intermediate: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_layers: int
    vocab_size: int
    norm_eps: float = 1e-6
    stored: FloatType = "bfloat16"

    @classmethod
    def from_model(cls, model: str) -> DecoderSizes:
        """Read a checkpoint folder's config.json.

        Raises:
            ConfigError: It cannot be read, or lacks a size.
        """
        folder = resolve_model_dir(model)
        config = text_config(load_config(folder))
        hidden = int_field(config, "hidden_size")
        num_heads = int_field(config, "num_attention_heads")
        return cls(
            name=Path(folder).name,
            hidden=hidden,
            intermediate=int_field(config, "intermediate_size"),
            num_heads=num_heads,
            num_kv_heads=int_field(config, "num_key_value_heads", default=num_heads),
            head_dim=int_field(config, "head_dim", default=max(hidden // num_heads, 1)),
            num_layers=int_field(config, "num_hidden_layers"),
            vocab_size=int_field(config, "vocab_size"),
            norm_eps=float_field(config, "rms_norm_eps", default=1e-6),
            stored=checkpoint_dtype(config) or "bfloat16",
        )

    @property
    def shape(self) -> AttentionShape:
        """Of the attention."""
        return AttentionShape(
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            scale=self.head_dim**-0.5,
            norm_eps=self.norm_eps,
        )


QWEN3_4B: Final = DecoderSizes(
    name="Qwen3-4B",
    hidden=2560,
    intermediate=9728,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    num_layers=36,
    vocab_size=151_936,
)
