"""What the kernels of delta-rule layers depend on."""

from __future__ import annotations

from typing import Literal

import msgspec

from pegainfer_core.kernels.catalog.sizes import ElementType, promise, tile_width


class DeltaSizes(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernels of delta-rule layers depend on.

    Attributes:
        element: Type of weights and activations.
        num_key_heads: Query heads, and as many key heads.
        num_value_heads: Value heads.
        key_dim: Channels of a query or key head.
        value_dim: Channels of a value head.
        conv_taps: Tokens that the convolution sees.
    """

    element: ElementType
    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    conv_taps: int

    @property
    def factor(self) -> Literal["fp16", "fp32"]:
        """Type of the factors of products between tokens of a piece."""
        return "fp16" if self.element == "bf16" else "fp32"

    @property
    def conv_width(self) -> int:
        """Channels that are convolved."""
        return 2 * self.num_key_heads * self.key_dim + self.value_width

    @property
    def value_width(self) -> int:
        """Values of a token's value heads."""
        return self.num_value_heads * self.value_dim

    @property
    def projected_width(self) -> int:
        """Values that a token is projected to: what is convolved, the gates, b and a."""
        return self.conv_width + self.value_width + 2 * self.num_value_heads

    @property
    def conv_types(self) -> tuple[str, str]:
        """Argument types of a layer's taps or slots, and of the distance between its slots."""
        aligned = promise(self.conv_width)
        return f"*{self.element}{aligned}", f"i64{aligned}"

    @property
    def memory_types(self) -> tuple[str, str]:
        """Argument types of a layer's memories, and of the distance between their slots."""
        aligned = promise(self.key_dim * self.value_dim)
        return f"*fp32{aligned}", f"i64{aligned}"

    @property
    def blocks(self) -> tuple[int, int]:
        """Channels of keys and of values, rounded up to what a tile can have."""
        return tile_width(self.key_dim), tile_width(self.value_dim)

    def dims(self, key_block: int, value_block: int) -> tuple[tuple[str, int], ...]:
        """Constants of Triton's kernels."""
        return (
            ("KEY_DIM", self.key_dim),
            ("VALUE_DIM", self.value_dim),
            ("BLOCK_K", key_block),
            ("BLOCK_V", value_block),
        )
