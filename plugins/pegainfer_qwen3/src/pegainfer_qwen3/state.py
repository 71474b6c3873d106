"""What a running Qwen3 request keeps: append-only attention KV in pages, nothing else.

Light: plans are made with it. Which page belongs to whom is the KV manager's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.backend import KvLayout

if TYPE_CHECKING:
    from pegainfer_core.backend import DType
    from pegainfer_qwen3.config import Qwen3Config


def kv_layout(config: Qwen3Config, page_tokens: int, dtype: DType) -> KvLayout:
    """Shape of the pages.

    Args:
        config: The model.
        page_tokens: Tokens in one page.
        dtype: Type of the stored keys and values.
    """
    return KvLayout(
        num_layers=config.num_layers,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        page_tokens=page_tokens,
        dtype=dtype,
    )
