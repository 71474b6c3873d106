"""What kernel variants depend on, and how sizes become compile-time constants."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

ElementType = Literal["bf16", "fp32"]

OVERLAP_ARCH: Final = 90
"""From here on a kernel can start while the one before it drains."""


class DecoderSizes(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernels of a transformer decoder depend on.

    Attributes:
        element: Type of weights, activations and KV.
        hidden: Width of the residual stream.
        intermediate: Width of the MLP.
        num_heads: Query heads.
        num_kv_heads: Key/value heads.
        head_dim: Channels of a head.
        page_tokens: Tokens in a KV page.
    """

    element: ElementType
    hidden: int
    intermediate: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    page_tokens: int


def promise(value: int) -> str:
    """Ending of an argument's type: the promise of a multiple of 16 where a value is one."""
    return ":16" if value % 16 == 0 else ""


def count_type(value: int) -> str:
    """Argument type of a count, with that promise."""
    return f"i32{promise(value)}"


def power_of_two(value: int) -> int:
    """The smallest power of two that is not below a value."""
    return 1 << max(value - 1, 0).bit_length()


def tile_width(value: int) -> int:
    """The smallest power of two that holds a value and that products of tiles take."""
    return max(power_of_two(value), 16)
