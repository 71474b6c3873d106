"""Memory of recurrent states on a backend. Who owns which slot is the scheduler's business."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegainfer_core.backend.state_layout import StateLayout
    from pegainfer_core.backend.tensor import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class StatePool:
    """Slots at fixed addresses, one of them for padding rows where a backend needs it.

    A row's state lies at its slot in per-request tables (`StepMetadata.row_slots`); slots behind
    those hold snapshots.

    Attributes:
        layout: Shape and type of a slot.
        memory: [slots, layers, heads, key_dim, value_dim] float32.
        conv: [slots, layers, conv_history, conv_width].
    """

    layout: StateLayout
    memory: Tensor
    conv: Tensor
