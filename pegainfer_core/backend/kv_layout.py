"""Shape and size of a paged KV cache. Light: plans are made with it before anything is loaded."""

from __future__ import annotations

import math

import msgspec

from pegainfer_core.backend.dtype import DType


class KvLayout(msgspec.Struct, frozen=True, kw_only=True):
    """How keys and values of a token lie in pages.

    Page-first: one page holds the K and V of all layers for `page_tokens` tokens, so that moving a
    page is one copy.

    Attributes:
        num_layers: Layers with attention.
        num_kv_heads: Key/value heads of a layer.
        head_dim: Channels of a head.
        page_tokens: Tokens in one page.
        dtype: Type of the stored values.
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    page_tokens: int
    dtype: DType

    @property
    def page_shape(self) -> tuple[int, int, int, int, int]:
        """[layers, 2 (K then V), page_tokens, kv_heads, head_dim]."""
        return (self.num_layers, 2, self.page_tokens, self.num_kv_heads, self.head_dim)

    @property
    def token_layer_bytes(self) -> int:
        """Bytes of one token's K and V in one layer."""
        return 2 * self.num_kv_heads * self.head_dim * self.dtype.itemsize

    @property
    def token_bytes(self) -> int:
        """Bytes of one token in all layers."""
        return self.num_layers * self.token_layer_bytes

    @property
    def page_bytes(self) -> int:
        """Bytes of one page."""
        return math.prod(self.page_shape) * self.dtype.itemsize

    def pages_for(self, num_tokens: int) -> int:
        """Pages that hold `num_tokens` tokens."""
        return -(-num_tokens // self.page_tokens)
