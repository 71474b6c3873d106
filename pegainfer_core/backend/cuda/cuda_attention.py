"""Paged attention on a GPU: decoding rows in one launch or two, prefill tiles in another."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

from pegainfer_core.backend.cuda.arrays import address, element
from pegainfer_core.backend.cuda.cuda_batch import DeferredHeads
from pegainfer_core.backend.cuda.pages import layer_address, page_boxes, page_values
from pegainfer_core.backend.cuda.prefill_attention import PrefillAttention
from pegainfer_core.backend.cuda.tensor_maps import TensorMaps
from pegainfer_core.backend.dtype import DType
from pegainfer_core.kernels import catalog

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda.cuda_batch import CudaBatch
    from pegainfer_core.backend.cuda.device import Device
    from pegainfer_core.backend.cuda.library import KernelLibrary
    from pegainfer_core.backend.decoder import AttentionShape
    from pegainfer_core.backend.kv_pool import KvPool
    from pegainfer_core.backend.rope import RopeTable
    from pegainfer_core.backend.tensor import Tensor
    from pegainfer_core.backend.workspace import Workspace

_LOG2_E = math.log2(math.e)
_COUNTER_BYTES = 1 << 20
"""For (rows, key heads) of a step, four bytes each."""

_MAX_FUSED_ROWS = 64
"""Beyond, where keys and values are not copied ahead, what each program does before its attention
costs more than launches of its own."""


class CudaAttention:
    """Launches the attention of a step, layer by layer.

    Args:
        device: Where everything lies.
        library: Its kernels.
    """

    def __init__(self, device: Device, library: KernelLibrary) -> None:
        self._device = device
        self._library = library
        self._overlaps = device.arch >= catalog.OVERLAP_ARCH
        copies_ahead = device.arch == catalog.DECODE_PAGES_ARCH
        self._max_fused_rows = sys.maxsize if copies_ahead else _MAX_FUSED_ROWS
        self._maps = TensorMaps(device)
        self._prefill = PrefillAttention(device, library, self._maps)
        self._counters = device.allocate(_COUNTER_BYTES)
        device.fill(self._counters.address, 0, _COUNTER_BYTES)

    def prepare(
        self,
        batch: CudaBatch,
        qkv: Tensor,
        head_norm: Tensor,
        rope: RopeTable,
        shape: AttentionShape,
        kv: KvPool,
        layer: int,
    ) -> None:
        """Head norms, RoPE and KV write of a layer, now or on the way of its attention."""
        # What is fused knows norms of the activations' type alone.
        same_type = head_norm.dtype is qkv.dtype
        if same_type and self._defers_heads(batch):
            batch.deferred = DeferredHeads(layer, head_norm, rope)
            return
        num_heads = shape.num_heads + shape.num_kv_heads
        half, page_tokens = rope.cos.width, kv.layout.page_tokens
        if same_type and 2 * half == shape.head_dim:
            spec = catalog.prepare_row(element(qkv.dtype), half, page_tokens)
            self._library.get(spec).launch(
                self._device.stream, (batch.num_tokens, -(-num_heads // catalog.PREPARED_HEADS)),
                address(qkv), address(head_norm), address(rope.cos), address(rope.sin),
                batch.positions, batch.slots, layer_address(kv, layer), qkv.width,
                shape.num_heads, shape.num_kv_heads, page_values(kv), shape.norm_eps,
            )  # fmt: skip
            return
        spec = catalog.prepare_heads(
            element(qkv.dtype), shape.head_dim, half, page_tokens, norm=True, rope=True, write=True,
            weight=element(head_norm.dtype),
        )  # fmt: skip
        self._library.get(spec).launch(
            self._device.stream, (batch.num_tokens, num_heads),
            address(qkv), address(head_norm), address(rope.cos), address(rope.sin),
            batch.positions, batch.slots, layer_address(kv, layer), qkv.width, 0,
            shape.num_heads, shape.num_kv_heads, page_values(kv), shape.norm_eps,
        )  # fmt: skip

    def takes_pages(self, shape: AttentionShape, kv: KvPool, dtype: DType) -> bool:
        """Whether decoding rows attend by bulk copies of their pages."""
        return catalog.takes_decode_pages(
            element(dtype),
            shape.head_dim,
            kv.layout.page_tokens,
            shape.num_heads // shape.num_kv_heads,
            self._device.arch,
        )

    def attend(
        self,
        batch: CudaBatch,
        qkv: Tensor,
        shape: AttentionShape,
        kv: KvPool,
        layer: int,
        attended: Tensor,
        workspace: Workspace,
    ) -> None:
        """See `Ops.paged_attention`."""
        # Laid out even if the first steps only decode.
        self._prefill.lay_out(batch, shape, workspace)
        heads, batch.deferred = batch.deferred, None
        if heads is not None and heads.layer != layer:
            raise ValueError(f"layer {layer} attends before the heads of {heads.layer} are used")
        if batch.num_rows and self.takes_pages(shape, kv, qkv.dtype):
            self._attend_pages(batch, heads, qkv, shape, kv, layer, attended, workspace)
        elif heads is not None:
            self._attend_step(batch, heads, qkv, shape, kv, layer, attended, workspace)
        elif batch.num_rows:
            self._attend_decoding(batch, qkv, shape, kv, layer, attended, workspace)
        if batch.num_tiles:
            self._prefill.attend(batch, qkv, shape, kv, layer, attended, workspace)

    def _defers_heads(self, batch: CudaBatch) -> bool:
        """Whether `attend` does the head norms, RoPE and KV write of this step on its way."""
        return not batch.num_tiles and batch.num_rows <= self._max_fused_rows

    def _attend_pages(
        self,
        batch: CudaBatch,
        heads: DeferredHeads | None,
        qkv: Tensor,
        shape: AttentionShape,
        kv: KvPool,
        layer: int,
        attended: Tensor,
        workspace: Workspace,
    ) -> None:
        """Decoding rows, with what was deferred, in one launch."""
        partial, stats = _part_buffers(batch, shape, workspace)
        norm = cos = sin = 0
        half = shape.head_dim // 2
        if heads is not None:
            norm, half = address(heads.norm), heads.rope.cos.width
            cos, sin = address(heads.rope.cos), address(heads.rope.sin)
        spec = catalog.decode_pages(
            shape.head_dim,
            half,
            kv.layout.page_tokens,
            shape.num_heads // shape.num_kv_heads,
            fused=heads is not None,
        )
        self._library.get(spec).launch(
            self._device.stream, (batch.max_items, shape.num_kv_heads),
            address(qkv), norm, cos, sin,
            self._maps.address(page_boxes(kv, catalog.DECODE_PAGE_KEYS)),
            layer_address(kv, layer), batch.items, batch.num_items, batch.pages,
            address(partial), address(stats), self._counters.address, address(attended),
            qkv.width, page_values(kv), shape.num_kv_heads, layer, shape.scale * _LOG2_E,
            shape.norm_eps,
        )  # fmt: skip

    def _attend_step(
        self,
        batch: CudaBatch,
        heads: DeferredHeads,
        qkv: Tensor,
        shape: AttentionShape,
        kv: KvPool,
        layer: int,
        attended: Tensor,
        workspace: Workspace,
    ) -> None:
        """Head norms, RoPE, KV write and attention of decoding rows in one launch."""
        kind, group = element(qkv.dtype), shape.num_heads // shape.num_kv_heads
        partial, stats = _part_buffers(batch, shape, workspace)
        spec = catalog.decode_attention(
            kind,
            shape.head_dim,
            heads.rope.cos.width,
            kv.layout.page_tokens,
            group,
            overlaps=self._overlaps,
        )
        self._library.get(spec).launch(
            self._device.stream, (batch.max_items, shape.num_kv_heads),
            address(qkv), address(heads.norm),
            address(heads.rope.cos), address(heads.rope.sin), batch.positions, batch.slots,
            layer_address(kv, layer), batch.items, batch.num_items, batch.row_items,
            batch.page_starts, batch.pages, address(partial), address(stats),
            self._counters.address, address(attended), qkv.width, page_values(kv),
            shape.num_kv_heads, group, shape.scale * _LOG2_E, shape.norm_eps,
        )  # fmt: skip

    def _attend_decoding(
        self,
        batch: CudaBatch,
        qkv: Tensor,
        shape: AttentionShape,
        kv: KvPool,
        layer: int,
        attended: Tensor,
        workspace: Workspace,
    ) -> None:
        layout = kv.layout
        partial, stats = _part_buffers(batch, shape, workspace)
        group = shape.num_heads // shape.num_kv_heads
        spec = catalog.attend_items(element(qkv.dtype), shape.head_dim, layout.page_tokens, group)
        self._library.get(spec).launch(
            self._device.stream, (batch.max_items, shape.num_kv_heads),
            address(qkv), layer_address(kv, layer),
            batch.items, batch.num_items, batch.page_starts, batch.pages,
            address(partial), address(stats),
            qkv.width, page_values(kv), shape.num_kv_heads, group, shape.scale * _LOG2_E,
        )  # fmt: skip
        self._library.get(catalog.combine_items(element(qkv.dtype), shape.head_dim)).launch(
            self._device.stream,
            (batch.num_rows, shape.num_heads), address(partial), address(stats), batch.row_items,
            address(attended), shape.num_heads,
        )  # fmt: skip


def _part_buffers(
    batch: CudaBatch, shape: AttentionShape, workspace: Workspace
) -> tuple[Tensor, Tensor]:
    """Room for parts of rows' attention: sums, and their maxima and totals."""
    most = len(batch.metadata.context_lens) + batch.upload.limits.target_items
    partial = workspace.buffer("attention_parts", shape.query_width, DType.FLOAT32, most)
    stats = workspace.buffer("attention_stats", 2 * shape.num_heads, DType.FLOAT32, most)
    return partial, stats
