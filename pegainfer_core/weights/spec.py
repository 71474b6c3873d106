"""What a model family says of its tensors: enough to check a checkpoint, or to make one up."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from pegainfer_core.weights.config import FloatType

__all__ = ["TensorKind", "TensorSpec", "TensorSpecs"]

TensorKind = Literal["embedding", "head", "matrix", "norm", "zero_norm", "router", "bias"]


class TensorSpec(NamedTuple):
    """One tensor of a checkpoint.

    Attributes:
        shape: As stored; matrices are [out, in].
        kind: The role, which decides the spread of seeded values. `zero_norm` is a norm weight
            that is applied as 1 + w.
        dtype: What its values are rounded to; None for the type the model computes in.
    """

    shape: tuple[int, ...]
    kind: TensorKind = "matrix"
    dtype: FloatType | None = None


TensorSpecs = Mapping[str, TensorSpec]
"""A family's tensors by the name that its own code uses for them."""
