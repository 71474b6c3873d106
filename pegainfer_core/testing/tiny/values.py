"""Seeded values of tiny checkpoints' tensors."""

import numpy as np

from pegainfer_core.weights import FloatArray, FloatType
from pegainfer_core.weights.seeded import BLOCK_VALUES, fill_block, normal_table, num_blocks

__all__ = ["seeded_values"]


def seeded_values(
    name: str, shape: tuple[int, ...], mean: float, std: float, dtype: FloatType, seed: int
) -> FloatArray:
    """Normally distributed values that depend on the arguments only, on every machine alike."""
    values = np.empty(shape, np.float32)
    table, flat = normal_table(mean, std, dtype), values.reshape(-1)
    for block in range(num_blocks(flat.size)):
        part = flat[block * BLOCK_VALUES : (block + 1) * BLOCK_VALUES]
        fill_block(part, table, seed, name, block)
    return values
