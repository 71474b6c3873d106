"""Where a KV pool's values lie on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.backend.cuda.arrays import address

if TYPE_CHECKING:
    from pegainfer_core.backend.kv_pool import KvPool


def layer_address(kv: KvPool, layer: int) -> int:
    """Where a layer's keys lie in page 0."""
    return address(kv.pages) + layer * kv.layout.page_tokens * kv.layout.token_layer_bytes


def page_values(kv: KvPool) -> int:
    """Values in a page."""
    return kv.layout.page_bytes // kv.layout.dtype.itemsize
