"""What a running Qwen3.5 request keeps: attention KV in pages, and one slot of recurrent state.

Light: plans are made with it. Which page or slot belongs to whom is decided elsewhere.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pegainfer_core.backend import KvLayout, StateLayout
from pegainfer_core.weights import ConfigError

if TYPE_CHECKING:
    from pegainfer_core.backend import DType
    from pegainfer_core.contract import CoreOptions
    from pegainfer_qwen35.config import Qwen35Config
    from pegainfer_qwen35.options import Qwen35Options

_DEFAULT_CACHE_GIB: Final = {"numpy": 1.0, "cuda": 8.0}

_MAX_SNAPSHOTS: Final = 1 << 14
"""Beyond this, states are so small that more of them save nothing."""


def kv_layout(config: Qwen35Config, page_tokens: int, dtype: DType) -> KvLayout:
    """Shape of the pages, which hold the attention layers only.

    Args:
        config: The model.
        page_tokens: Tokens in one page.
        dtype: Type of the stored keys and values.
    """
    return KvLayout(
        num_layers=config.num_full_layers,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        page_tokens=page_tokens,
        dtype=dtype,
    )


def state_layout(config: Qwen35Config, dtype: DType) -> StateLayout:
    """Shape of a slot.

    Args:
        config: The model.
        dtype: Type of activations.
    """
    delta = config.delta
    return StateLayout(
        num_layers=config.num_linear_layers,
        num_heads=delta.num_value_heads,
        key_dim=delta.key_dim,
        value_dim=delta.value_dim,
        conv_width=delta.conv_width,
        conv_history=delta.conv_taps - 1,
        dtype=dtype,
    )


def num_snapshots(
    layout: StateLayout, options: CoreOptions, own: Qwen35Options, backend: str
) -> int:
    """Slots for snapshots, without which there are no prefix hits.

    Raises:
        ConfigError: The memory asked for is negative, or too little for one.
    """
    asked = own.state_cache_gib
    if asked is not None and not (math.isfinite(asked) and asked >= 0):
        raise ConfigError(f"--state-cache-gib {asked:g} must be a number of at least 0")
    if not options.prefix_cache:
        return 0
    gib = _DEFAULT_CACHE_GIB[backend] if asked is None else asked
    # As floats: a number of bytes may be beyond what an int can be made of.
    count = int(min(gib * 2**30 / layout.slot_bytes, _MAX_SNAPSHOTS))
    if gib and not count:
        raise ConfigError(
            f"--state-cache-gib {gib:g} holds no recurrent state of "
            f"{layout.slot_bytes / 2**20:.1f} MiB; raise it, or give 0 to go without prefix hits"
        )
    return count
