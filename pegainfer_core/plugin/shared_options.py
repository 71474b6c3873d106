"""Which common flags a family honours when it is made of core's parts. Light."""

from __future__ import annotations

from typing import Final

__all__ = ["DECODER_OPTIONS", "LORA_OPTIONS"]

DECODER_OPTIONS: Final = frozenset(
    {
        "backend",
        "cuda_graph",
        "device",
        "gpu_memory_utilization",
        "itl_target_ms",
        "kv_events",
        "kv_events_encoding",
        "kv_events_replay",
        "kv_events_topic",
        "kv_hash",
        "kv_hash_seed",
        "kv_offload",
        "kv_offload_disk_gib",
        "kv_offload_disk_path",
        "kv_offload_host_gib",
        "kv_page_size",
        "kv_reserve",
        "load_format",
        "max_model_len",
        "max_num_seqs",
        "max_prefill_tokens",
        "num_kv_pages",
        "prefix_cache",
        "seed",
    }
)
"""Of a decoder with core's scheduler parts, KV manager, offload and loader."""

LORA_OPTIONS: Final = frozenset({"lora", "max_lora_rank", "max_loras"})
"""Of a family that takes adapters."""
