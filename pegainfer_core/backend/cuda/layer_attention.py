"""The attention of one layer of a step, as all its kernels are told of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from pegainfer_core.backend.cuda.arrays import element

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda.cuda_batch import CudaBatch
    from pegainfer_core.backend.decoder import AttentionShape
    from pegainfer_core.backend.kv_pool import KvPool
    from pegainfer_core.backend.tensor import Tensor
    from pegainfer_core.backend.workspace import Workspace
    from pegainfer_core.kernels.catalog import ElementType

_LOG2_E: Final = math.log2(math.e)


class LayerAttention(NamedTuple):
    """What is read and written.

    Attributes:
        batch: The step.
        qkv: Of its tokens.
        shape: Of the heads.
        kv: The pages.
        layer: Whose keys and values in them.
        attended: Where the output goes.
        workspace: Of the model.
    """

    batch: CudaBatch
    qkv: Tensor
    shape: AttentionShape
    kv: KvPool
    layer: int
    attended: Tensor
    workspace: Workspace

    @property
    def element(self) -> ElementType:
        """Type of everything."""
        return element(self.qkv.dtype)

    @property
    def page_tokens(self) -> int:
        """Tokens in a page."""
        return self.kv.layout.page_tokens

    @property
    def log2_scale(self) -> float:
        """What the dot products are multiplied by; kernels take powers of two, not of e."""
        return self.shape.scale * _LOG2_E
