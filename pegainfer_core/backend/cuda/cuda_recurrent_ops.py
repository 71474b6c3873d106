"""The ops of hybrid models on a GPU: delta-rule layers, and attention whose output is gated."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple, cast

from pegainfer_core.backend.cuda.arrays import address, element, empty_tensor
from pegainfer_core.backend.dtype import DType
from pegainfer_core.backend.recurrent_ops import RecurrentOps
from pegainfer_core.backend.workspace import Workspace
from pegainfer_core.kernels import catalog

if TYPE_CHECKING:
    from pegainfer_core.backend.batch import Batch
    from pegainfer_core.backend.cuda.cuda_batch import CudaBatch
    from pegainfer_core.backend.cuda.device import Device
    from pegainfer_core.backend.cuda.library import KernelLibrary
    from pegainfer_core.backend.cuda.recurrent_items import RecurrentWork
    from pegainfer_core.backend.ops import Ops
    from pegainfer_core.backend.recurrent import DeltaShape, DeltaWeights
    from pegainfer_core.backend.state_pool import StatePool
    from pegainfer_core.backend.tensor import Tensor
    from pegainfer_core.kernels import KernelSpec


class PieceScratch(NamedTuple):
    """What pieces prepare for the scan, a row a token.

    Attributes:
        reads: [tokens, value heads * key_dim] float32.
        writes: [tokens, value_width] float32.
        scores: [tokens, value heads * PIECE_TOKENS] float32.
        decays: [tokens, value heads] float32.
        systems: [tokens, value heads * PIECE_TOKENS] float32, which the scan does not need.
    """

    reads: Tensor
    writes: Tensor
    scores: Tensor
    decays: Tensor
    systems: Tensor


class CudaRecurrentOps(RecurrentOps):
    """Implements `RecurrentOps` on the device's stream.

    Args:
        ops: The same backend's.
        device: Where everything lies.
        library: Its kernels.
    """

    def __init__(self, ops: Ops, device: Device, library: KernelLibrary) -> None:
        super().__init__(ops)
        self._device = device
        self._library = library
        # Of the primitive op alone, which is given none.
        self._own: dict[int, Workspace] = {}

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
        scratch = _piece_scratch(workspace, shape)
        self.causal_conv(batch, projected, weights.conv, shape, states, layer, mixed)
        cuda, work = _split(batch)
        if cuda.num_rows:
            self._step(cuda, mixed, projected, weights, shape, states, layer, gated, gated=True)
        if work.num_pieces:
            self._scan(work, mixed, projected, weights, shape, states, layer, delta, scratch)
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
        sizes, width = _sizes(shape, projected.dtype), shape.conv_width
        layout = states.layout
        kept = layout.conv_history * width
        slots = address(states.conv) + layer * kept * layout.dtype.itemsize
        distance = layout.num_layers * kept
        blocks = -(-width // catalog.CONV_BLOCK)
        if cuda.num_rows:
            self._launch(
                catalog.conv_step(sizes), (cuda.num_rows, blocks),
                address(projected), address(taps), cuda.positions, work.row_slots, work.row_saves,
                slots, address(mixed), projected.width, width, distance,
            )  # fmt: skip
        if work.num_pieces:
            self._launch(
                catalog.conv_pieces(sizes),
                (work.num_pieces, -(-width // catalog.CONV_PIECE_BLOCK)),
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
        if cuda.num_rows:
            self._step(cuda, mixed, projected, weights, shape, states, layer, delta, gated=False)
        if work.num_pieces:
            rows = mixed.shape[0]
            if rows not in self._own:
                self._own[rows] = Workspace(partial(empty_tensor, self._device), rows, rows)
            scratch = _piece_scratch(self._own[rows], shape)
            self._scan(work, mixed, projected, weights, shape, states, layer, delta, scratch)

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
        self,
        batch: CudaBatch,
        mixed: Tensor,
        projected: Tensor,
        weights: DeltaWeights,
        shape: DeltaShape,
        states: StatePool,
        layer: int,
        out: Tensor,
        *,
        gated: bool,
    ) -> None:
        """Decoding rows, with norm and gate or without."""
        _, work = _split(batch)
        memory, distance = _memories(states, layer)
        gates = shape.conv_width
        self._launch(
            catalog.delta_step(_sizes(shape, projected.dtype), gated=gated),
            (batch.num_rows, shape.num_value_heads),
            address(mixed), address(projected), address(weights.decay_rate),
            address(weights.decay_bias), address(weights.norm), batch.positions, work.row_slots,
            work.row_saves, memory, address(out), projected.width, gates,
            gates + shape.value_width, shape.num_key_heads, shape.num_value_heads, distance,
            shape.key_dim**-0.5, shape.norm_eps,
        )  # fmt: skip

    def _scan(
        self,
        work: RecurrentWork,
        mixed: Tensor,
        projected: Tensor,
        weights: DeltaWeights,
        shape: DeltaShape,
        states: StatePool,
        layer: int,
        delta: Tensor,
        scratch: PieceScratch,
    ) -> None:
        """All other rows: pieces at once, then each row's in order."""
        sizes, num_heads = _sizes(shape, projected.dtype), shape.num_value_heads
        between = [address(tensor) for tensor in scratch]
        scale = shape.key_dim**-0.5
        self._launch(
            catalog.prepare_pieces(sizes), (work.num_pieces, num_heads),
            address(mixed), address(projected), address(weights.decay_rate),
            address(weights.decay_bias), work.pieces, work.piece_count, *between,
            projected.width, shape.conv_width + shape.value_width, shape.num_key_heads, num_heads,
            scale,
        )  # fmt: skip
        memory, distance = _memories(states, layer)
        parts = -(-shape.value_dim // catalog.scan_channels(sizes))
        self._launch(
            catalog.scan_pieces(sizes), (work.num_rows * num_heads, parts),
            address(mixed), work.pieces, work.row_pieces, *between[:-1], memory, address(delta),
            shape.num_key_heads, num_heads, distance, scale,
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


@cache
def _sizes(shape: DeltaShape, dtype: DType) -> catalog.DeltaSizes:
    return delta_sizes(shape, dtype)


def delta_sizes(shape: DeltaShape, dtype: DType) -> catalog.DeltaSizes:
    """What kernels depend on, of a shape and a type of activations."""
    return catalog.DeltaSizes(
        element=element(dtype),
        num_key_heads=shape.num_key_heads,
        num_value_heads=shape.num_value_heads,
        key_dim=shape.key_dim,
        value_dim=shape.value_dim,
        conv_taps=shape.conv_taps,
    )


def _split(batch: Batch) -> tuple[CudaBatch, RecurrentWork]:
    """A step, and what is in it for recurrent layers.

    Raises:
        ValueError: The backend was not told of such layers before it saw the step.
    """
    cuda = cast("CudaBatch", batch)
    if cuda.recurrent is None:
        raise ValueError("tell the backend of recurrent layers before the first step")
    return cuda, cuda.recurrent


def _memories(states: StatePool, layer: int) -> tuple[int, int]:
    """Where a layer's memories lie in slot 0, and values from slot to slot."""
    layout = states.layout
    of_layer = layout.num_heads * layout.key_dim * layout.value_dim
    at = address(states.memory) + layer * of_layer * DType.FLOAT32.itemsize
    return at, layout.num_layers * of_layer


def _piece_scratch(workspace: Workspace, shape: DeltaShape) -> PieceScratch:
    heads = shape.num_value_heads
    widths = {
        "delta_reads": heads * shape.key_dim,
        "delta_writes": heads * shape.value_dim,
        "delta_scores": heads * catalog.PIECE_TOKENS,
        "delta_decays": heads,
        "delta_systems": heads * catalog.PIECE_TOKENS,
    }
    return PieceScratch(
        *(workspace.buffer(name, width, DType.FLOAT32) for name, width in widths.items())
    )
