"""The ops of hybrid models on a GPU: delta-rule layers, and attention whose output is gated."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from pegainfer_core.backend.cuda.arrays import address, element, empty_tensor
from pegainfer_core.backend.cuda.cuda_products import RmsNorm
from pegainfer_core.backend.cuda.piece_scan import DeltaInput, PieceScan, layer_memories
from pegainfer_core.backend.cuda.piece_scratch import delta_sizes, piece_scratch
from pegainfer_core.backend.recurrent_ops import RecurrentOps
from pegainfer_core.backend.workspace import Workspace
from pegainfer_core.kernels import catalog

if TYPE_CHECKING:
    from pegainfer_core.backend.batch import Batch
    from pegainfer_core.backend.cuda.cuda_batch import CudaBatch
    from pegainfer_core.backend.cuda.cuda_products import CudaProducts
    from pegainfer_core.backend.cuda.device import Device
    from pegainfer_core.backend.cuda.library import KernelLibrary
    from pegainfer_core.backend.cuda.recurrent_items import RecurrentWork
    from pegainfer_core.backend.ops import Ops
    from pegainfer_core.backend.recurrent import DeltaShape, DeltaWeights
    from pegainfer_core.backend.state_pool import StatePool
    from pegainfer_core.backend.tensor import Tensor
    from pegainfer_core.kernels import KernelSpec


class CudaRecurrentOps(RecurrentOps):
    """Implements `RecurrentOps` on the device's stream.

    Args:
        ops: The same backend's.
        products: Which kernel computes a product.
        device: Where everything lies.
        library: Its kernels.
    """

    def __init__(
        self, ops: Ops, products: CudaProducts, device: Device, library: KernelLibrary
    ) -> None:
        super().__init__(ops)
        self._products = products
        self._device = device
        self._library = library
        self._overlaps = device.arch >= catalog.OVERLAP_ARCH
        self._pieces = PieceScan(device, library)
        # Of the primitive op alone, which is given none.
        self._own: dict[int, Workspace] = {}

    def norm_project(
        self,
        batch: Batch,
        hidden: Tensor,
        norm: Tensor,
        norm_eps: float,
        weight: Tensor,
        projected: Tensor,
        workspace: Workspace,
    ) -> None:
        """See `RecurrentOps.norm_project`; of few rows in one launch."""
        count = batch.num_tokens
        if self._products.takes_few_rows(count, hidden, projected):
            # Laid out even if the first step is small.
            workspace.buffer("normed", hidden.width, hidden.dtype)
            self._products.normed(count, hidden, RmsNorm(norm, norm_eps), weight, projected)
        else:
            super().norm_project(batch, hidden, norm, norm_eps, weight, projected, workspace)

    def gated_delta(
        self,
        batch: Batch,
        projected: Tensor,
        weights: DeltaWeights,
        shape: DeltaShape,
        states: StatePool,
        layer: int,
        gated: Tensor,
        workspace: Workspace,
    ) -> None:
        """See `RecurrentOps.gated_delta`; decoding rows are done in two launches."""
        mixed = workspace.buffer("mixed", shape.conv_width, projected.dtype)
        delta = workspace.buffer("delta", shape.value_width, projected.dtype)
        # Laid out even if the first steps only decode.
        scratch = piece_scratch(workspace, shape, projected.dtype)
        self.causal_conv(batch, projected, weights.conv, shape, states, layer, mixed)
        cuda, work = _split(batch)
        given = DeltaInput(mixed, projected, weights, shape, states, layer)
        if cuda.num_rows:
            self._step(cuda, work, given, gated, gated=True)
        if work.num_pieces:
            self._pieces.take(work, given, delta, scratch)
            first = cuda.num_rows
            self._gate(first, batch.num_tokens, delta, projected, weights.norm, shape, gated)

    def sigmoid_mul(self, count: int, gates: Tensor, first: int, out: Tensor) -> None:
        """See `RecurrentOps.sigmoid_mul`."""
        self._launch(
            catalog.sigmoid_mul(element(out.dtype), out.width),
            (count, -(-out.width // catalog.SMALL_BLOCK)),
            address(gates),
            address(out),
            gates.width,
            first,
            out.width,
        )

    def causal_conv(
        self,
        batch: Batch,
        projected: Tensor,
        taps: Tensor,
        shape: DeltaShape,
        states: StatePool,
        layer: int,
        mixed: Tensor,
    ) -> None:
        """See `RecurrentOps.causal_conv`."""
        cuda, work = _split(batch)
        sizes, width = delta_sizes(shape, projected.dtype), shape.conv_width
        layout = states.layout
        kept = layout.conv_history * width
        slots = address(states.conv) + layer * kept * layout.dtype.itemsize
        distance = layout.num_layers * kept
        blocks = -(-width // catalog.CONV_BLOCK)
        if cuda.num_rows:
            self._launch(
                catalog.conv_step(sizes, overlaps=self._overlaps), (cuda.num_rows, blocks),
                address(projected), address(taps), cuda.positions, work.row_slots, work.row_saves,
                slots, address(mixed), projected.width, width, distance,
            )  # fmt: skip
        if work.num_pieces:
            self._launch(
                catalog.conv_pieces(sizes),
                (work.num_pieces, catalog.conv_piece_programs(sizes)),
                address(projected), address(taps), work.pieces, work.piece_count, slots,
                address(mixed), projected.width, width, distance,
            )  # fmt: skip
            self._launch(
                catalog.keep_inputs(sizes), (work.num_rows, blocks),
                address(projected), work.pieces, work.row_pieces, slots, projected.width, width,
                distance,
            )  # fmt: skip

    def delta_rule(
        self,
        batch: Batch,
        mixed: Tensor,
        projected: Tensor,
        weights: DeltaWeights,
        shape: DeltaShape,
        states: StatePool,
        layer: int,
        delta: Tensor,
    ) -> None:
        """See `RecurrentOps.delta_rule`."""
        cuda, work = _split(batch)
        given = DeltaInput(mixed, projected, weights, shape, states, layer)
        if cuda.num_rows:
            self._step(cuda, work, given, delta, gated=False)
        if work.num_pieces:
            rows = mixed.shape[0]
            if rows not in self._own:
                self._own[rows] = Workspace(partial(empty_tensor, self._device), rows, rows)
            scratch = piece_scratch(self._own[rows], shape, projected.dtype)
            self._pieces.take(work, given, delta, scratch)

    def gated_norm(
        self,
        count: int,
        delta: Tensor,
        projected: Tensor,
        norm: Tensor,
        shape: DeltaShape,
        gated: Tensor,
    ) -> None:
        """See `RecurrentOps.gated_norm`."""
        self._gate(0, count, delta, projected, norm, shape, gated)

    def _step(
        self, batch: CudaBatch, work: RecurrentWork, given: DeltaInput, out: Tensor, *, gated: bool
    ) -> None:
        """Decoding rows, with norm and gate or without."""
        mixed, projected, weights, shape, states, layer = given
        memory, distance = layer_memories(states, layer)
        gates = shape.conv_width
        self._launch(
            catalog.delta_step(
                delta_sizes(shape, projected.dtype), gated=gated, overlaps=self._overlaps
            ),
            (batch.num_rows, shape.num_value_heads),
            address(mixed), address(projected), address(weights.decay_rate),
            address(weights.decay_bias), address(weights.norm), batch.positions, work.row_slots,
            work.row_saves, memory, address(out), projected.width, gates,
            gates + shape.value_width, shape.num_key_heads, shape.num_value_heads, distance,
            shape.key_dim**-0.5, shape.norm_eps,
        )  # fmt: skip

    def _gate(
        self,
        first: int,
        end: int,
        delta: Tensor,
        projected: Tensor,
        norm: Tensor,
        shape: DeltaShape,
        gated: Tensor,
    ) -> None:
        """`gated_norm` of tokens [first, end)."""
        size = projected.dtype.itemsize
        skipped = first * shape.value_width * size
        self._launch(
            catalog.gated_norm(element(gated.dtype), shape.value_dim),
            (end - first, -(-shape.num_value_heads // catalog.NORMED_HEADS)),
            address(delta) + skipped, address(projected) + first * projected.width * size,
            address(norm), address(gated) + skipped, projected.width, shape.conv_width,
            shape.num_value_heads, shape.norm_eps,
        )  # fmt: skip

    def _launch(self, spec: KernelSpec, grid: tuple[int, int], *arguments: float) -> None:
        self._library.get(spec).launch(self._device.stream, grid, *arguments)


def _split(batch: Batch) -> tuple[CudaBatch, RecurrentWork]:
    """A step, and what is in it for recurrent layers.

    Raises:
        ValueError: The backend was not told of such layers before it saw the step.
    """
    cuda = cast("CudaBatch", batch)
    if cuda.recurrent is None:
        raise ValueError("tell the backend of recurrent layers before the first step")
    return cuda, cuda.recurrent
