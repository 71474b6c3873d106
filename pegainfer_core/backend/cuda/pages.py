"""Where a KV pool's values lie on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pegainfer_core.backend.cuda.arrays import address
from pegainfer_core.backend.cuda.tensor_maps import TensorLayout

if TYPE_CHECKING:
    from pegainfer_core.backend.kv_pool import KvPool

SWIZZLED_CHANNELS: Final = 64
"""Channels that one bulk tensor copy brings of a token."""


def layer_address(kv: KvPool, layer: int) -> int:
    """Where a layer's keys lie in page 0."""
    return address(kv.pages) + layer * kv.layout.page_tokens * kv.layout.token_layer_bytes


def page_values(kv: KvPool) -> int:
    """Values in a page."""
    return kv.layout.page_bytes // kv.layout.dtype.itemsize


def page_boxes(kv: KvPool, tokens: int) -> TensorLayout:
    """Boxes of so many tokens of a page, of one key head and 64 channels.

    Dimensions: channel, key head, token, plane (keys and values of each layer), page.
    """
    layout = kv.layout
    token = layout.num_kv_heads * layout.head_dim
    planes = 2 * layout.num_layers
    return TensorLayout(
        address(kv.pages),
        (layout.head_dim, layout.num_kv_heads, layout.page_tokens, planes, kv.num_pages),
        (layout.head_dim, token, layout.page_tokens * token, page_values(kv)),
        (SWIZZLED_CHANNELS, 1, tokens, 1, 1),
    )
