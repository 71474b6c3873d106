"""What is kept between the kernels that take a row a piece at a time."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from pegainfer_core.backend.cuda.arrays import element
from pegainfer_core.backend.dtype import DType
from pegainfer_core.kernels import catalog

if TYPE_CHECKING:
    from pegainfer_core.backend.recurrent import DeltaShape
    from pegainfer_core.backend.tensor import Tensor
    from pegainfer_core.backend.workspace import Workspace

T = TypeVar("T")

_FACTORS: Final = {"fp16": DType.FLOAT16, "fp32": DType.FLOAT32}


class PieceScratch(NamedTuple, Generic[T]):
    """What pieces prepare for the scan, a row a token; factors are of the type of factors.

    Attributes:
        queries: [tokens, key_width] factors.
        keys: [tokens, key_width] factors.
        scores: [tokens, value heads * PIECE_TOKENS] factors.
        systems: [tokens, value heads * PIECE_TOKENS] float32.
        of_values: [tokens, value heads * PIECE_TOKENS] factors.
        of_keys: [tokens, value heads * PIECE_TOKENS] factors.
        reads: [tokens, value heads * key_dim] factors.
        writes: [tokens, value_width] float32.
        strengths: [tokens, value heads] float32.
        decays: [tokens, value heads] float32.
        query_factors: [tokens, value heads] float32.
        key_factors: [tokens, value heads] float32.
    """

    queries: T
    keys: T
    scores: T
    systems: T
    of_values: T
    of_keys: T
    reads: T
    writes: T
    strengths: T
    decays: T
    query_factors: T
    key_factors: T


@cache
def delta_sizes(shape: DeltaShape, dtype: DType) -> catalog.DeltaSizes:
    """What kernels depend on, of a shape and a type of activations."""
    return catalog.DeltaSizes(
        element=element(dtype),
        num_key_heads=shape.num_key_heads,
        num_value_heads=shape.num_value_heads,
        key_dim=shape.key_dim,
        value_dim=shape.value_dim,
        conv_taps=shape.conv_taps,
    )


def piece_scratch(workspace: Workspace, shape: DeltaShape, dtype: DType) -> PieceScratch[Tensor]:
    """Lay it out, or find it again.

    Raises:
        WorkspaceError: The workspace is frozen and was laid out without.
    """
    heads, exact = shape.num_value_heads, DType.FLOAT32
    factor = _FACTORS[delta_sizes(shape, dtype).factor]
    each = heads * catalog.PIECE_TOKENS
    buffer = workspace.buffer
    return PieceScratch(
        queries=buffer("delta_queries", shape.key_width, factor),
        keys=buffer("delta_keys", shape.key_width, factor),
        scores=buffer("delta_scores", each, factor),
        systems=buffer("delta_systems", each, exact),
        of_values=buffer("delta_of_values", each, factor),
        of_keys=buffer("delta_of_keys", each, factor),
        reads=buffer("delta_reads", heads * shape.key_dim, factor),
        writes=buffer("delta_writes", shape.value_width, exact),
        strengths=buffer("delta_strengths", heads, exact),
        decays=buffer("delta_decays", heads, exact),
        query_factors=buffer("delta_query_factors", heads, exact),
        key_factors=buffer("delta_key_factors", heads, exact),
    )
