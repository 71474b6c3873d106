"""Delta-rule layers of rows that do not decode, a piece at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pegainfer_core.backend.cuda.arrays import address
from pegainfer_core.backend.cuda.pages import SWIZZLED_CHANNELS
from pegainfer_core.backend.cuda.piece_scratch import PieceScratch, delta_sizes
from pegainfer_core.backend.cuda.tensor_maps import TensorLayout, TensorMaps
from pegainfer_core.backend.dtype import DType
from pegainfer_core.kernels import catalog

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda.device import Device
    from pegainfer_core.backend.cuda.library import KernelLibrary
    from pegainfer_core.backend.cuda.recurrent_items import RecurrentWork
    from pegainfer_core.backend.recurrent import DeltaShape, DeltaWeights
    from pegainfer_core.backend.state_pool import StatePool
    from pegainfer_core.backend.tensor import Tensor
    from pegainfer_core.kernels import KernelSpec


class DeltaInput(NamedTuple):
    """What the delta rule of a layer reads, and the states that it goes on from."""

    mixed: Tensor
    projected: Tensor
    weights: DeltaWeights
    shape: DeltaShape
    states: StatePool
    layer: int


class PieceScan:
    """Launches the four kernels of the chunked form.

    Args:
        device: Where everything lies.
        library: Its kernels.
    """

    def __init__(self, device: Device, library: KernelLibrary) -> None:
        self._device = device
        self._library = library
        self._maps = TensorMaps(device)

    def take(
        self, work: RecurrentWork, given: DeltaInput, delta: Tensor, scratch: PieceScratch[Tensor]
    ) -> None:
        """Pieces at once, then each row's in order.

        Args:
            work: What to do; some rows do not decode.
            given: Of a layer.
            delta: [T, value_width], where what the memories answer goes.
            scratch: Laid out for the same shape.
        """
        mixed, projected, weights, shape, *_ = given
        sizes, num_heads = delta_sizes(shape, projected.dtype), shape.num_value_heads
        at = PieceScratch(*(address(tensor) for tensor in scratch))
        grid = (work.num_pieces, num_heads)
        self._launch(
            catalog.relate_pieces(sizes), (work.num_pieces, shape.num_key_heads),
            address(mixed), address(projected), address(weights.decay_rate),
            address(weights.decay_bias), work.pieces, work.piece_count, at.queries, at.keys,
            at.scores, at.systems, at.strengths, at.decays, at.query_factors, at.key_factors,
            projected.width, shape.conv_width + shape.value_width, shape.num_key_heads, num_heads,
            shape.key_dim**-0.5,
        )  # fmt: skip
        self._launch(
            catalog.invert_pieces(sizes), grid,
            work.pieces, work.piece_count, at.systems, at.strengths, at.decays, at.of_values,
            at.of_keys, num_heads,
        )  # fmt: skip
        self._launch(
            catalog.write_pieces(sizes), grid,
            address(mixed), work.pieces, work.piece_count, at.keys, at.of_values, at.of_keys,
            at.reads, at.writes, shape.num_key_heads, num_heads,
        )  # fmt: skip
        self._scan(work, given, delta, scratch)

    def _scan(
        self, work: RecurrentWork, given: DeltaInput, delta: Tensor, scratch: PieceScratch[Tensor]
    ) -> None:
        shape, num_heads = given.shape, given.shape.num_value_heads
        sizes = delta_sizes(shape, given.projected.dtype)
        memory, distance = layer_memories(given.states, given.layer)
        tiles = (scratch.queries, scratch.keys, scratch.reads, scratch.writes, scratch.scores)
        programs = work.num_rows * num_heads
        if catalog.takes_turned_scan(sizes, self._device.arch):
            spec, channels = catalog.turned_scan(sizes), catalog.TURNED_CHANNELS
            places = [self._maps.address(_tiles(tensor)) for tensor in tiles]
        else:
            channels = catalog.scan_channels(sizes, programs)
            spec, places = catalog.scan_pieces(sizes, channels), [address(each) for each in tiles]
        facts = (scratch.decays, scratch.query_factors, scratch.key_factors)
        self._launch(
            spec, (programs, -(-shape.value_dim // channels)), work.pieces, work.row_pieces,
            *places, *(address(each) for each in facts), memory, address(delta),
            shape.num_key_heads, num_heads, distance,
        )  # fmt: skip

    def _launch(self, spec: KernelSpec, grid: tuple[int, int], *arguments: float) -> None:
        self._library.get(spec).launch(self._device.stream, grid, *arguments)


def _tiles(tensor: Tensor) -> TensorLayout:
    """Boxes of 128 bytes of the tokens of a piece; 16 bits count as a value, whatever they are."""
    rows, width = tensor.shape
    width = width * tensor.dtype.itemsize // DType.BFLOAT16.itemsize
    return TensorLayout(
        address(tensor), (width, rows), (width,), (SWIZZLED_CHANNELS, catalog.PIECE_TOKENS)
    )


def layer_memories(states: StatePool, layer: int) -> tuple[int, int]:
    """Where a layer's memories lie in slot 0, and values from slot to slot."""
    layout = states.layout
    of_layer = layout.num_heads * layout.key_dim * layout.value_dim
    at = address(states.memory) + layer * of_layer * DType.FLOAT32.itemsize
    return at, layout.num_layers * of_layer
