"""Parameters of a transformer decoder and its layers, bundled the way the wide ops take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from pegainfer_core.backend.tensor import Tensor

LayerT = TypeVar("LayerT")


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Grouped-query attention: query head j reads key/value head j // (num_heads / num_kv_heads).

    Attributes:
        num_heads: Query heads.
        num_kv_heads: Key/value heads; divides `num_heads`.
        head_dim: Channels of a head.
        scale: What the dot products are multiplied by.
        norm_eps: Epsilon of the input norm and of the norms on query and key heads.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    norm_eps: float

    @property
    def group(self) -> int:
        """Query heads a key head."""
        return self.num_heads // self.num_kv_heads

    @property
    def query_width(self) -> int:
        """Values in one token's queries."""
        return self.num_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Values in one token's keys, or in its values."""
        return self.num_kv_heads * self.head_dim

    @property
    def qkv_width(self) -> int:
        """Values in one token's queries, keys and values."""
        return self.query_width + 2 * self.kv_width


@dataclass(frozen=True, slots=True, eq=False)
class AttentionWeights:
    """Parameters of one attention block; matrices are [out, in].

    Attributes:
        input_norm: [hidden].
        qkv: [qkv_width, hidden]: all query heads, then key heads, then value heads.
        head_norm: [num_heads + num_kv_heads, head_dim]: the query norm's weight for each query
            head, then the key norm's for each key head, so that one pass norms them all.
        out: [hidden, query_width].
    """

    input_norm: Tensor
    qkv: Tensor
    head_norm: Tensor
    out: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class MlpWeights:
    """Parameters of one gated MLP; matrices are [out, in].

    Attributes:
        norm: [hidden], applied to the block's input.
        gate_up: [2 * intermediate, hidden]: gate rows, then up rows.
        down: [hidden, intermediate].
        norm_eps: Epsilon of the norm.
    """

    norm: Tensor
    gate_up: Tensor
    down: Tensor
    norm_eps: float


# No slots: with them, Python 3.11 cannot call what is both frozen and generic.
@dataclass(frozen=True, eq=False)
class DecoderWeights(Generic[LayerT]):
    """All parameters of a decoder.

    Attributes:
        embedding: [vocab, hidden].
        layers: In order; what is in one is the family's business.
        norm: [hidden], before the head.
        head: [vocab, hidden]; the embedding itself when tied.
    """

    embedding: Tensor
    layers: tuple[LayerT, ...]
    norm: Tensor
    head: Tensor
