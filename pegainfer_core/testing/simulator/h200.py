"""Qwen3-4B shapes on one H200, fitted to `docs/benchmarks/h200-qwen3.md`."""

from __future__ import annotations

from typing import Final

from pegainfer_core.contract import ServePlan
from pegainfer_core.testing.simulator.cost_model import CostModel
from pegainfer_core.testing.simulator.front_end import FrontEndCost
from pegainfer_core.testing.simulator.host_tier import HostTierCost

H200_QWEN3_4B: Final = CostModel(
    # Of the model: 36 layers, 8 key heads and 32 query heads of 128, bfloat16.
    weight_bytes=8.04e9,
    kv_bytes_per_token=36 * 2 * 8 * 128 * 2,
    flops_per_token=7.27e9,
    flops_per_pair=36 * 4 * 32 * 128,
    # Fitted.
    weight_bytes_per_s=4.23e12,
    kv_bytes_per_s=4.3e12,
    flops_per_s=745e12,
    attention_flops_per_s=520e12,
    token_tile=128,
    step_s=1.0e-3,
    mixed_s=2.0e-3,
    token_s=2.0e-6,
    row_s=1.0e-6,
    pack_s=0.25e-3,
    pack_row_s=7.3e-6,
    launch_s=4.0e-3,
    # As the backend records them.
    recorded_prompt_tokens=512,
    recorded_prompts=8,
)

H200_FRONT_END: Final = FrontEndCost(request_s=1.6e-3, response_s=0.5e-3, serial_s=0.5e-3)

H200_PLAN: Final = ServePlan(
    max_model_len=40_960,
    vocab_size=151_936,
    backend="simulated",
    page_tokens=16,
    num_pages=49_000,
    max_num_seqs=256,
    max_prefill_tokens=8192,
)

H200_HOST_TIER: Final = HostTierCost(
    num_pages=64 * 2**30 // (16 * 36 * 2 * 8 * 128 * 2),  # of 64 GiB
    page_s=16 * 36 * 2 * 8 * 128 * 2 / 55e9,
    prefill_tokens_per_s=70_000,
)
