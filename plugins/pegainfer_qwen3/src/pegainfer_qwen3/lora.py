"""Where Qwen3 takes adapters. Light: plans are made with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.lora import gated_decoder_layout

if TYPE_CHECKING:
    from pegainfer_core.lora import LoraLayout
    from pegainfer_qwen3.config import Qwen3Config


def lora_layout(config: Qwen3Config) -> LoraLayout:
    """All projections of every layer; not embedding and head."""
    return gated_decoder_layout(
        num_layers=config.num_layers,
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        query_width=config.num_heads * config.head_dim,
        kv_width=config.num_kv_heads * config.head_dim,
    )
