"""The adapters of one product of a layer, in all slots, as the ops take them. Knows no names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegainfer_core.backend.tensor import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class LoraSite:
    """Low-rank additions to a product with `n` outputs, which may be several products in one.

    Part p of the outputs gets scale * (x @ A_p^T) @ B_p^T; x has `k` values. Ranks below the
    largest are filled up with zeros.

    Attributes:
        down: [slots, parts * rank, k]: A of each part, one below the other.
        up: [slots, n, rank]: B of each part, one below the other.
        facts: [slots, 2] float32: scale and own rank of the adapter in a slot; no rank if there is
            none.
        widths: Outputs of each part, one to three, in order; their sum is n.
    """

    down: Tensor
    up: Tensor
    facts: Tensor
    widths: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Ranks that a slot has room for, a multiple of 16."""
        return self.up.width

    @property
    def num_outputs(self) -> int:
        """Outputs of all parts."""
        return self.up.shape[1]


@dataclass(frozen=True, slots=True)
class LayerLora:
    """Sites of one decoder layer; None where nothing is added.

    Attributes:
        qkv: Of queries, keys and values.
        out: Of the attention's output projection.
        gate_up: Of the MLP's two first projections.
        down: Of its last.
    """

    qkv: LoraSite | None = None
    out: LoraSite | None = None
    gate_up: LoraSite | None = None
    down: LoraSite | None = None
