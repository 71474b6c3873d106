"""Launches the attention of prefilling rows: a tile of query tokens and heads at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pegainfer_core.backend.cuda.arrays import address
from pegainfer_core.backend.cuda.pages import (
    SWIZZLED_CHANNELS,
    layer_address,
    page_boxes,
    page_values,
)
from pegainfer_core.backend.cuda.tensor_maps import TensorLayout
from pegainfer_core.backend.cuda.work_items import max_split_parts
from pegainfer_core.backend.dtype import DType
from pegainfer_core.kernels import catalog

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda.cuda_batch import CudaBatch
    from pegainfer_core.backend.cuda.device import Device
    from pegainfer_core.backend.cuda.layer_attention import LayerAttention
    from pegainfer_core.backend.cuda.library import KernelLibrary
    from pegainfer_core.backend.cuda.tensor_maps import TensorMaps
    from pegainfer_core.backend.decoder import AttentionShape
    from pegainfer_core.backend.tensor import Tensor
    from pegainfer_core.backend.workspace import Workspace

_STATE_BYTES: Final = 256
_COUNTER_BYTES: Final = 1 << 16
"""For (parts, key heads, programs of a tile), four bytes each."""


class PrefillAttention:
    """The attention of rows with many query tokens.

    Args:
        device: Where everything lies.
        library: Its kernels.
        maps: Its tensor maps.
    """

    def __init__(self, device: Device, library: KernelLibrary, maps: TensorMaps) -> None:
        self._device = device
        self._library = library
        self._maps = maps
        self._state = device.allocate(_STATE_BYTES + _COUNTER_BYTES)
        device.fill(self._state.address, 0, self._state.num_bytes)

    def lay_out(
        self, batch: CudaBatch, shape: AttentionShape, workspace: Workspace
    ) -> tuple[Tensor, Tensor]:
        """Room for the parts of split tiles: sums, and their maxima and totals."""
        parts = max_split_parts(batch.upload.limits.prefill) * shape.num_kv_heads
        rows = parts * catalog.PREFILL_ROWS
        sums = workspace.buffer("prefill_sums", shape.head_dim, DType.FLOAT32, rows)
        return sums, workspace.buffer("prefill_stats", 2, DType.FLOAT32, rows)

    def attend(self, work: LayerAttention) -> None:
        """Attend the rows behind a step's decoding ones.

        Raises:
            ValueError: The step was cut for fewer query heads a key head.
        """
        shape, group = work.shape, work.shape.group
        limits = work.batch.upload.limits.prefill
        if limits.tile > catalog.prefill_tile(group):
            raise ValueError(
                f"a tile of {limits.tile} tokens has no room for {group} query heads a key head; "
                "tell the backend of the decoder before its first step"
            )
        sums, stats = self.lay_out(work.batch, shape, work.workspace)
        arch = self._device.arch
        if catalog.takes_wgmma(work.element, shape.head_dim, work.page_tokens, group, arch):
            self._launch_wgmma(work, sums, stats)
        else:
            self._launch_any(work, sums, stats)

    def _launch_wgmma(self, work: LayerAttention, sums: Tensor, stats: Tensor) -> None:
        """A grid of one program a multiprocessor, which takes pieces until none is left."""
        batch, shape = work.batch, work.shape
        spec = catalog.attend_tiles_wgmma(shape.head_dim, work.page_tokens, shape.group)
        self._library.get(spec).launch(
            self._device.stream, (self._device.num_multiprocessors, 1),
            self._maps.address(_query_layout(work.qkv, shape)),
            self._maps.address(page_boxes(work.kv, work.page_tokens)),
            batch.tiles, batch.num_prefill_items, batch.pages, address(sums), address(stats),
            self._state.address + _STATE_BYTES, self._state.address, address(work.attended),
            shape.num_kv_heads, work.layer, work.log2_scale,
        )  # fmt: skip

    def _launch_any(self, work: LayerAttention, sums: Tensor, stats: Tensor) -> None:
        batch, shape = work.batch, work.shape
        spec = catalog.attend_tiles(work.element, shape.head_dim, work.page_tokens, shape.group)
        self._library.get(spec).launch(
            self._device.stream,
            (batch.num_tiles * catalog.prefill_parts(work.element), shape.num_kv_heads),
            address(work.qkv), layer_address(work.kv, work.layer), batch.tiles,
            batch.num_prefill_items, batch.pages, address(sums), address(stats),
            self._state.address + _STATE_BYTES, address(work.attended), work.qkv.width,
            page_values(work.kv), shape.num_kv_heads, work.log2_scale,
        )  # fmt: skip


def _query_layout(qkv: Tensor, shape: AttentionShape) -> TensorLayout:
    """Queries by channel, head and token; a box holds the heads of a key head for a tile."""
    return TensorLayout(
        address(qkv),
        (shape.head_dim, shape.num_heads, qkv.shape[0]),
        (shape.head_dim, qkv.width),
        (SWIZZLED_CHANNELS, shape.group, catalog.prefill_tile(shape.group)),
    )
