"""Shape and size of what recurrent layers carry. Light: plans are made with it."""

from __future__ import annotations

import math

import msgspec

from pegainfer_core.backend.dtype import DType


class StateLayout(msgspec.Struct, frozen=True, kw_only=True):
    """What one slot holds: for every recurrent layer a memory and the end of its inputs.

    Slot-first: a slot's layers lie together, so that copying a slot is one copy of each part.

    Attributes:
        num_layers: Recurrent layers.
        num_heads: Heads of the memory.
        key_dim: Channels that a head is read and written by.
        value_dim: Channels of what it holds.
        conv_width: Channels of the causal convolution.
        conv_history: Tokens whose inputs of the convolution are kept.
        dtype: Type of the convolution's inputs; the memory is float32 always, for its rounding
            errors would add up over a whole context.
    """

    num_layers: int
    num_heads: int
    key_dim: int
    value_dim: int
    conv_width: int
    conv_history: int
    dtype: DType

    @property
    def memory_shape(self) -> tuple[int, int, int, int]:
        """[layers, heads, key_dim, value_dim], float32."""
        return (self.num_layers, self.num_heads, self.key_dim, self.value_dim)

    @property
    def conv_shape(self) -> tuple[int, int, int]:
        """[layers, conv_history (oldest first), conv_width]."""
        return (self.num_layers, self.conv_history, self.conv_width)

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot."""
        memory = math.prod(self.memory_shape) * DType.FLOAT32.itemsize
        return memory + math.prod(self.conv_shape) * self.dtype.itemsize
