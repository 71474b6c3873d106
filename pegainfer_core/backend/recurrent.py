"""Shapes and parameters of gated delta-rule layers, bundled the way the wide ops take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegainfer_core.backend.tensor import Tensor


@dataclass(frozen=True, slots=True)
class DeltaShape:
    """A gated delta rule: value head j reads key head j // (num_value_heads / num_key_heads).

    Attributes:
        num_key_heads: Query heads, and as many key heads.
        num_value_heads: Value heads, each with a memory; a multiple of `num_key_heads`.
        key_dim: Channels of a query or key head.
        value_dim: Channels of a value head.
        conv_taps: Tokens that the convolution sees, the current one included; at least 2.
        norm_eps: Epsilon of the input norm and of the output norm.
    """

    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    conv_taps: int
    norm_eps: float

    @property
    def key_width(self) -> int:
        """Values in one token's queries, or in its keys."""
        return self.num_key_heads * self.key_dim

    @property
    def value_width(self) -> int:
        """Values in one token's values, or in its output."""
        return self.num_value_heads * self.value_dim

    @property
    def conv_width(self) -> int:
        """Values that are convolved: queries, keys, values."""
        return 2 * self.key_width + self.value_width

    @property
    def projected_width(self) -> int:
        """Values that one token is projected to: q, k, v | z | b | a."""
        return self.conv_width + self.value_width + 2 * self.num_value_heads


@dataclass(frozen=True, slots=True, eq=False)
class DeltaWeights:
    """Parameters of one gated delta-rule layer; matrices are [out, in].

    Attributes:
        input_norm: [hidden].
        projection: [projected_width, hidden]: query heads, key heads, value heads, z (gate of the
            output), b (strength of the update), a (decay).
        conv: [conv_taps, conv_width], the last tap for the current token.
        decay_rate: [num_value_heads] float32, -exp(A_log).
        decay_bias: [num_value_heads] float32, dt_bias.
        norm: [value_dim], of each head's output.
        out: [hidden, value_width].
    """

    input_norm: Tensor
    projection: Tensor
    conv: Tensor
    decay_rate: Tensor
    decay_bias: Tensor
    norm: Tensor
    out: Tensor
