"""The memory of adapters on a backend: a fixed number of slots, all of one size.

Knows no names and no requests: who is in which slot is the table's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pegainfer_core.backend import DType, LayerLora, LoraSite
from pegainfer_core.lora.layout import room_for
from pegainfer_core.weights import ConfigError, round_floats

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.backend import Backend, Tensor
    from pegainfer_core.lora.layout import LoraLayout, LoraProduct
    from pegainfer_core.lora.reader import AdapterWeights
    from pegainfer_core.weights import FloatArray


class PackedAdapter(NamedTuple):
    """An adapter as a slot holds it.

    Attributes:
        parts: Tensors and what goes into them at the slot's index.
        facts: Scale and rank.
    """

    parts: list[tuple[Tensor, NDArray[np.generic]]]
    facts: NDArray[np.generic]


class LoraSlots:
    """Tensors that hold the adapters of a model. An empty slot has rank 0, and so adds nothing.

    Attributes:
        layers: Of each layer, what its ops take.
        num_slots: Adapters that fit.

    Args:
        backend: Where they live.
        layout: Where the model takes adapters.
        num_slots: Adapters that fit.
        max_rank: Largest rank.
        dtype: Type of the model.

    Raises:
        ConfigError: They do not fit into the memory.
    """

    def __init__(
        self, backend: Backend, layout: LoraLayout, num_slots: int, max_rank: int, dtype: DType
    ) -> None:
        self.num_slots = num_slots
        self._backend = backend
        self._layout = layout
        self._dtype = dtype
        self._rank = room_for(max_rank)
        self._facts = backend.adopt(np.zeros((num_slots, 2), np.float32), DType.FLOAT32)
        try:
            self._sites = [
                {product.name: self._site(product) for product in layout.products}
                for _ in range(layout.num_layers)
            ]
        except (ConfigError, MemoryError) as error:
            slot_mib = layout.slot_bytes(self._rank, dtype.itemsize) / 2**20
            raise ConfigError(
                f"{num_slots} slots of {slot_mib:.1f} MiB for LoRA adapters do not fit; lower "
                f"--max-loras or --max-lora-rank ({error})"
            ) from error
        self.layers = [LayerLora(**sites) for sites in self._sites]
        backend.prepare_lora(list(self._sites[0].values()))

    def pack(self, weights: AdapterWeights) -> PackedAdapter:
        """Bring an adapter into the form of a slot; may be called on any thread."""
        rank, scale = weights.config.rank, weights.config.scale
        parts = []
        for layer, sites in enumerate(self._sites):
            for product in self._layout.products:
                site = sites[product.name]
                down, up = self._matrices(product, weights, layer, rank)
                for tensor, values in ((site.down, down), (site.up, up)):
                    round_floats(values, self._dtype.value)
                    parts.append((tensor, self._backend.pack(values, self._dtype)))
        facts = np.array([scale, rank], np.float32)
        return PackedAdapter(parts, self._backend.pack(facts, DType.FLOAT32))

    def write(self, slot: int, adapter: PackedAdapter) -> None:
        """Put an adapter into a slot, once no launched step reads it; engine's thread only."""
        for tensor, values in adapter.parts:
            self._backend.overwrite(tensor, slot, values)
        self._backend.overwrite(self._facts, slot, adapter.facts)

    def _site(self, product: LoraProduct) -> LoraSite:
        rank, slots = self._rank, self.num_slots
        down = (slots, len(product.modules) * rank, product.inputs)
        return LoraSite(
            down=self._backend.empty(down, self._dtype),
            up=self._backend.empty((slots, product.outputs, rank), self._dtype),
            facts=self._facts,
            widths=tuple(module.outputs for module in product.modules),
        )

    def _matrices(
        self, product: LoraProduct, weights: AdapterWeights, layer: int, rank: int
    ) -> tuple[FloatArray, FloatArray]:
        """Of all modules of a product, filled up with zeros."""
        room = self._rank
        down = np.zeros((len(product.modules) * room, product.inputs), np.float32)
        up = np.zeros((product.outputs, room), np.float32)
        begin = 0
        for index, module in enumerate(product.modules):
            pair = weights.pairs.get((layer, module.name))
            if pair is not None:
                down[index * room : index * room + rank] = pair.down
                up[begin : begin + module.outputs, :rank] = pair.up
            begin += module.outputs
        return down, up
