"""Paged attention on a GPU: decoding rows in one launch or two, prefill tiles in another."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pegainfer_core.backend.cuda.arrays import address, element
from pegainfer_core.backend.cuda.cuda_batch import DeferredHeads
from pegainfer_core.backend.cuda.layer_attention import LayerAttention
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
            shape.group,
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
        work = LayerAttention(batch, qkv, shape, kv, layer, attended, workspace)
        if batch.num_rows and self.takes_pages(shape, kv, qkv.dtype):
            self._attend_pages(work, heads)
        elif heads is not None:
            self._attend_step(work, heads)
        elif batch.num_rows:
            self._attend_decoding(work)
        if batch.num_tiles:
            self._prefill.attend(work)

    def _defers_heads(self, batch: CudaBatch) -> bool:
        """Whether `attend` does the head norms, RoPE and KV write of this step on its way."""
        return not batch.num_tiles and batch.num_rows <= self._max_fused_rows

    def _attend_pages(self, work: LayerAttention, heads: DeferredHeads | None) -> None:
        """Decoding rows, with what was deferred, in one launch."""
        batch, shape, kv = work.batch, work.shape, work.kv
        partial, stats = _part_buffers(work)
        norm = cos = sin = 0
        half = shape.head_dim // 2
        if heads is not None:
            norm, half = address(heads.norm), heads.rope.cos.width
            cos, sin = address(heads.rope.cos), address(heads.rope.sin)
        spec = catalog.decode_pages(
            shape.head_dim,
            half,
            work.page_tokens,
            shape.group,
            fused=heads is not None,
        )
        self._library.get(spec).launch(
            self._device.stream, (batch.max_items, shape.num_kv_heads),
            address(work.qkv), norm, cos, sin,
            self._maps.address(page_boxes(kv, catalog.DECODE_PAGE_KEYS)),
            layer_address(kv, work.layer), batch.items, batch.num_items, batch.pages,
            address(partial), address(stats), self._counters.address, address(work.attended),
            work.qkv.width, page_values(kv), shape.num_kv_heads, work.layer, work.log2_scale,
            shape.norm_eps,
        )  # fmt: skip

    def _attend_step(self, work: LayerAttention, heads: DeferredHeads) -> None:
        """Head norms, RoPE, KV write and attention of decoding rows in one launch."""
        batch, shape, kv = work.batch, work.shape, work.kv
        partial, stats = _part_buffers(work)
        spec = catalog.decode_attention(
            work.element,
            shape.head_dim,
            heads.rope.cos.width,
            work.page_tokens,
            shape.group,
            overlaps=self._overlaps,
        )
        self._library.get(spec).launch(
            self._device.stream, (batch.max_items, shape.num_kv_heads),
            address(work.qkv), address(heads.norm),
            address(heads.rope.cos), address(heads.rope.sin), batch.positions, batch.slots,
            layer_address(kv, work.layer), batch.items, batch.num_items, batch.row_items,
            batch.page_starts, batch.pages, address(partial), address(stats),
            self._counters.address, address(work.attended), work.qkv.width, page_values(kv),
            shape.num_kv_heads, shape.group, work.log2_scale, shape.norm_eps,
        )  # fmt: skip

    def _attend_decoding(self, work: LayerAttention) -> None:
        batch, shape, kv = work.batch, work.shape, work.kv
        partial, stats = _part_buffers(work)
        spec = catalog.attend_items(work.element, shape.head_dim, work.page_tokens, shape.group)
        self._library.get(spec).launch(
            self._device.stream, (batch.max_items, shape.num_kv_heads),
            address(work.qkv), layer_address(kv, work.layer),
            batch.items, batch.num_items, batch.page_starts, batch.pages,
            address(partial), address(stats),
            work.qkv.width, page_values(kv), shape.num_kv_heads, shape.group, work.log2_scale,
        )  # fmt: skip
        self._library.get(catalog.combine_items(work.element, shape.head_dim)).launch(
            self._device.stream,
            (batch.num_rows, shape.num_heads), address(partial), address(stats), batch.row_items,
            address(work.attended), shape.num_heads,
        )  # fmt: skip


def _part_buffers(work: LayerAttention) -> tuple[Tensor, Tensor]:
    """Room for parts of rows' attention: sums, and their maxima and totals."""
    batch, shape, workspace = work.batch, work.shape, work.workspace
    most = len(batch.metadata.context_lens) + batch.upload.limits.target_items
    partial = workspace.buffer("attention_parts", shape.query_width, DType.FLOAT32, most)
    stats = workspace.buffer("attention_stats", 2 * shape.num_heads, DType.FLOAT32, most)
    return partial, stats
