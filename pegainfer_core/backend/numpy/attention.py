"""Paged attention on NumPy: rows one after another, each on a dense copy of its context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pegainfer_core.backend.dtype import DType
from pegainfer_core.backend.numpy.arrays import (
    bfloat16_bits,
    floats,
    stored_pages,
    widen,
)

if TYPE_CHECKING:
    from pegainfer_core.backend.decoder import AttentionShape
    from pegainfer_core.backend.kv_pool import KvPool
    from pegainfer_core.backend.numpy.arrays import FloatArray
    from pegainfer_core.backend.numpy.numpy_batch import NumpyBatch, RowSpan
    from pegainfer_core.backend.numpy.numpy_kv_pool import NumpyKvPool
    from pegainfer_core.backend.workspace import Workspace

_MAX_SCORES: Final = 1 << 22
"""Most scores held at once (16 MiB): longer prefills go through in tiles of queries."""

_MAX_GROUP_BY_VECTOR: Final = 4
"""Up to this many query heads a key head, matrix-vector products beat one skinny matrix product."""


class Queries(NamedTuple):
    """A step's queries and where their answers go.

    Attributes:
        heads: [T, kv_heads, group, head_dim].
        scaled: Scratch of one token's shape.
        results: `out` by heads, like `heads`.
        out: [T, query_width], not rounded here.
        scratch: Of the shape of `out`.
    """

    heads: FloatArray
    scaled: FloatArray
    results: FloatArray
    out: FloatArray
    scratch: FloatArray


def bind_queries(columns: FloatArray, out: FloatArray, shape: AttentionShape) -> Queries:
    """Cut queries [T, query_width] and `out`, of the same shape, by heads."""
    by_heads = (len(columns), shape.num_kv_heads, -1, shape.head_dim)
    heads = columns.reshape(by_heads)
    scaled = np.empty(heads.shape[1:], np.float32)
    scratch = np.empty(out.shape, np.float32)
    return Queries(heads, scaled, out.reshape(by_heads), out, scratch)


def write_kv(batch: NumpyBatch, values: FloatArray, kv: NumpyKvPool, layer: int) -> None:
    """Store keys and values of the step's tokens.

    Args:
        batch: The step.
        values: [T, 2 (K then V), kv_heads, head_dim], already of the pages' type.
        kv: The pages.
        layer: Index in the pages.
    """
    for row, context in zip(batch.rows, batch.dense_contexts(kv.contexts), strict=True):
        if context is not None:
            context.append(row, values[row.first : row.end], layer)
    stored = bfloat16_bits(values) if kv.layout.dtype is DType.BFLOAT16 else values
    stored_pages(kv)[batch.slot_pages, layer, :, batch.slot_offsets] = stored


def attend_rows(
    batch: NumpyBatch,
    queries: Queries,
    shape: AttentionShape,
    kv: NumpyKvPool,
    layer: int,
    workspace: Workspace,
) -> None:
    """Attention of every row over its own context.

    Args:
        batch: The step.
        queries: Of all rows.
        shape: Of the attention.
        kv: The pages.
        layer: Index in the pages.
        workspace: For dense copies.
    """
    contexts = kv.contexts
    for row, context in zip(batch.rows, batch.dense_contexts(contexts), strict=True):
        if context is None:
            keys, values = _gather(kv, row, layer, workspace)
        else:
            keys, values = contexts.extend(context, row, layer)
        first, end = row.first, row.end
        heads, results = queries.heads, queries.results
        if end - first == 1 and heads.shape[2] <= _MAX_GROUP_BY_VECTOR:
            _attend_token(heads[first], queries.scaled, keys, values, shape.scale, results[first])
        else:
            _attend_chunk(heads[first:end], keys, values, shape.scale, results[first:end])


def _gather(
    kv: KvPool, row: RowSpan, layer: int, workspace: Workspace
) -> tuple[FloatArray, FloatArray]:
    """Keys and values of a row's context in one layer, each [kv_heads, context, head_dim] float32.

    Only written slots are read: what lies behind the context in the last page (stale, or poison in
    a test) cannot reach a result.
    """
    layout = kv.layout
    width = layout.num_kv_heads * layout.head_dim
    rows = 2 * workspace.max_context_tokens
    dense = floats(workspace.buffer("context", width, DType.FLOAT32, rows)).reshape(
        2, -1, layout.num_kv_heads, layout.head_dim
    )
    pages = stored_pages(kv)
    for start, page in zip(range(0, row.context, layout.page_tokens), row.pages, strict=True):
        end = min(start + layout.page_tokens, row.context)
        # Page by page, so that one stays in a core's cache between its reading and its writing.
        widen(pages[page, layer, :, : end - start], dense[:, start:end])
    keys, values = dense[:, : row.context].swapaxes(1, 2)
    return keys, values


def _attend_token(
    heads: FloatArray,
    scaled: FloatArray,
    keys: FloatArray,
    values: FloatArray,
    scale: float,
    results: FloatArray,
) -> None:
    """One query token, [kv_heads, group, head_dim], which sees the whole context."""
    np.multiply(heads, scale, scaled)
    kv_heads, group, _ = heads.shape
    scores = np.empty((group, kv_heads, keys.shape[1]), np.float32)
    for member in range(group):
        np.matmul(keys, scaled[:, member, :, None], scores[member, :, :, None])
    np.divide(scores, _exponentiate(scores), scores)
    for member in range(group):
        np.matmul(scores[member, :, None], values, results[:, member, None])


def _attend_chunk(
    heads: FloatArray, keys: FloatArray, values: FloatArray, scale: float, results: FloatArray
) -> None:
    """Consecutive query tokens, the last of which sees the whole context.

    Args:
        heads: [n, kv_heads, group, head_dim].
        keys: [kv_heads, context, head_dim].
        values: Likewise.
        scale: Of the scores.
        results: Like `heads`.
    """
    count, kv_heads, group, _ = heads.shape
    context = keys.shape[1]
    tile = max(_MAX_SCORES // (kv_heads * group * context), 1)
    for first in range(0, count, tile):
        end = min(first + tile, count)
        seen = context - count + end
        _attend_tile(heads[first:end], keys[:, :seen], values[:, :seen], scale, results[first:end])


def _attend_tile(
    heads: FloatArray, keys: FloatArray, values: FloatArray, scale: float, results: FloatArray
) -> None:
    count, kv_heads, group, head_dim = heads.shape
    context = keys.shape[1]
    # [kv head, query head of its group, token]: every product below is one matrix a kv head.
    scaled = np.multiply(heads.transpose(1, 2, 0, 3), np.float32(scale), order="C")
    stacked = scaled.reshape(kv_heads, group * count, head_dim)
    scores = np.matmul(stacked, keys.transpose(0, 2, 1))
    if count > 1:
        # The last `count` positions are the queries' own: query i sees i + 1 of them.
        own = scores.reshape(kv_heads, group, count, context)[..., context - count :]
        own[..., np.triu(np.ones((count, count), np.bool_), 1)] = -np.inf
    total = _exponentiate(scores)
    weighted = np.matmul(scores, values)
    weighted /= total
    results[...] = weighted.reshape(kv_heads, group, count, head_dim).transpose(2, 0, 1, 3)


def _exponentiate(scores: FloatArray) -> FloatArray:
    """Turn scores into unnormalised probabilities in place; returns their sums, last axis kept."""
    np.subtract(scores, np.maximum.reduce(scores, axis=-1, keepdims=True), scores)
    np.exp(scores, scores)
    total: FloatArray = np.add.reduce(scores, axis=-1, keepdims=True)
    return total
