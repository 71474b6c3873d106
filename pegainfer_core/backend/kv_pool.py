"""The paged KV memory of one model on a backend. Who owns which page is `pegainfer_core.kv`'s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegainfer_core.backend.kv_layout import KvLayout
    from pegainfer_core.backend.tensor import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class KvPool:
    """KV pages, the padding page included.

    Attributes:
        layout: Shape and type of a page.
        pages: [num_pages, layers, 2, page_tokens, kv_heads, head_dim].
    """

    layout: KvLayout
    pages: Tensor

    @property
    def num_pages(self) -> int:
        """Pages in the pool; ids run from 0 (the padding page) to `num_pages` - 1."""
        return self.pages.shape[0]
