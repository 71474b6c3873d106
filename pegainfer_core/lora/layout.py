"""Where a family's layers take adapters: products, their modules, and their sizes.

Light: plans are made with it. Knows no adapter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

RANK_STEP: Final = 16
"""Slots have room for a multiple of this rank."""

ProductName = Literal["qkv", "out", "gate_up", "down"]


class LoraModule(msgspec.Struct, frozen=True):
    """A linear layer that adapters may change.

    Attributes:
        name: Inside its decoder layer, such as `self_attn.q_proj`.
        outputs: Rows of its weight.
    """

    name: str
    outputs: int


class LoraProduct(msgspec.Struct, frozen=True):
    """Modules that share an input and are computed as one product, in this order.

    Attributes:
        name: Which of a layer's products, as `LayerLora` calls it.
        inputs: Columns of their weights.
        modules: One to three.
    """

    name: ProductName
    inputs: int
    modules: tuple[LoraModule, ...]

    @property
    def outputs(self) -> int:
        """Rows of all their weights."""
        return sum(module.outputs for module in self.modules)


class LoraLayout(msgspec.Struct, frozen=True):
    """What a family offers to adapters.

    Attributes:
        num_layers: Decoder layers, all alike.
        layers: Name of the list of layers in the model, such as `model.layers`.
        products: Of one layer.
    """

    num_layers: int
    layers: str
    products: tuple[LoraProduct, ...]

    def slot_bytes(self, max_rank: int, itemsize: int) -> int:
        """Memory of one slot.

        Args:
            max_rank: Largest rank that fits.
            itemsize: Bytes of a value.
        """
        rank = room_for(max_rank)
        values = sum(
            rank * (len(product.modules) * product.inputs + product.outputs)
            for product in self.products
        )
        return self.num_layers * values * itemsize

    def module_names(self) -> Iterator[str]:
        """All modules of one layer."""
        return (module.name for product in self.products for module in product.modules)


def room_for(max_rank: int) -> int:
    """Ranks that a slot holds so that adapters up to `max_rank` fit."""
    return -(-max_rank // RANK_STEP) * RANK_STEP


def gated_decoder_layout(
    *,
    num_layers: int,
    hidden: int,
    intermediate: int,
    query_width: int,
    kv_width: int,
    layers: str = "model.layers",
) -> LoraLayout:
    """All seven projections of a decoder with grouped-query attention and a gated MLP.

    Args:
        num_layers: Decoder layers.
        hidden: Width of the residual stream.
        intermediate: Width of the MLP.
        query_width: Values of one token's queries.
        kv_width: Values of its keys, or of its values.
        layers: Name of the list of layers.
    """
    query, key, value = (
        LoraModule(f"self_attn.{name}_proj", width)
        for name, width in (("q", query_width), ("k", kv_width), ("v", kv_width))
    )
    gate, up = (LoraModule(f"mlp.{name}_proj", intermediate) for name in ("gate", "up"))
    return LoraLayout(
        num_layers,
        layers,
        (
            LoraProduct("qkv", hidden, (query, key, value)),
            LoraProduct("out", query_width, (LoraModule("self_attn.o_proj", hidden),)),
            LoraProduct("gate_up", hidden, (gate, up)),
            LoraProduct("down", intermediate, (LoraModule("mlp.down_proj", hidden),)),
        ),
    )
