"""Cos and sin tables of rotary position embedding, for every position a model may see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.backend.tensor import Tensor
    from pegainfer_core.weights import RopeConfig


@dataclass(frozen=True, slots=True, eq=False)
class RopeTable:
    """Tables of one RoPE setting, half-split pairing: channel i turns with i + rotary_dim / 2.

    Attributes:
        cos: [max_positions, rotary_dim / 2], times the attention factor.
        sin: Likewise.
    """

    cos: Tensor
    sin: Tensor


def rope_tables(
    rope: RopeConfig, max_positions: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cos and sin of every position's angles, times the attention factor.

    Angles are made in float32 from float32 frequencies, as transformers makes them; narrowing the
    tables to the model's type comes last, for a bfloat16 angle would be off by whole radians.

    Args:
        rope: The setting.
        max_positions: Positions 0 to `max_positions` - 1.

    Returns:
        cos and sin, float32 [max_positions, rotary_dim / 2].
    """
    inverse = np.array(rope.inverse_frequencies(), np.float32)
    angles = np.arange(max_positions, dtype=np.float32)[:, None] * inverse
    factor = np.float32(rope.attention_factor)
    cos = np.cos(angles)
    sin = np.sin(angles, out=angles)
    cos *= factor
    sin *= factor
    return cos, sin
