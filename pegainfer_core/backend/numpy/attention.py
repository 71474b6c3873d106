"""Paged attention on NumPy: rows one after another, each on a dense copy of its context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

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
    from pegainfer_core.backend.numpy.dense_contexts import DenseContexts
    from pegainfer_core.backend.numpy.numpy_batch import NumpyBatch, RowSpan
    from pegainfer_core.backend.numpy.numpy_kv_pool import NumpyKvPool
    from pegainfer_core.backend.workspace import Workspace

_MAX_SCORES: Final = 1 << 22
"""Most scores held at once (16 MiB): longer prefills go through in tiles of queries."""

_MAX_GROUP_BY_VECTOR: Final = 4
"""Up to this many query heads a key head, matrix-vector products beat one skinny matrix product."""


def write_kv(batch: NumpyBatch, values: FloatArray, kv: KvPool, layer: int) -> None:
    """Store keys and values of the step's tokens.

    Args:
        batch: The step.
        values: [T, 2 * kv_width]: keys, then values, already of the pages' type.
        kv: The pages.
        layer: Index in the pages.
    """
    layout = kv.layout
    batch.dense_contexts(_dense_contexts(kv))
    stored = values.reshape(len(values), 2, layout.num_kv_heads, layout.head_dim)
    stored_pages(kv)[batch.slot_pages, layer, :, batch.slot_offsets] = (
        bfloat16_bits(stored) if layout.dtype is DType.BFLOAT16 else stored
    )


def attend_rows(
    batch: NumpyBatch,
    queries: FloatArray,
    shape: AttentionShape,
    kv: KvPool,
    layer: int,
    out: FloatArray,
    workspace: Workspace,
) -> None:
    """Attention of every row over its own context.

    Args:
        batch: The step.
        queries: [T, query_width].
        shape: Of the attention.
        kv: The pages.
        layer: Index in the pages.
        out: [T, query_width], not rounded here.
        workspace: For the dense copies.
    """
    contexts = _dense_contexts(kv)
    for row, context in zip(batch.rows, batch.dense_contexts(contexts), strict=True):
        if context is None:
            keys, values = _gather(kv, row, layer, workspace)
        else:
            keys, values = contexts.extend(context, row, layer)
        row_queries, row_out = queries[row.first : row.end], out[row.first : row.end]
        if row.end - row.first == 1:
            _attend_token(row_queries[0], keys, values, shape, row_out[0])
        else:
            _attend_chunk(row_queries, keys, values, shape, row_out)


def _dense_contexts(kv: KvPool) -> DenseContexts:
    return cast("NumpyKvPool", kv).contexts


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
    query: FloatArray, keys: FloatArray, values: FloatArray, shape: AttentionShape, out: FloatArray
) -> None:
    """One query token, [query_width], which sees the whole context."""
    group = shape.num_heads // shape.num_kv_heads
    if group > _MAX_GROUP_BY_VECTOR:
        _attend_chunk(query[None], keys, values, shape, out[None])
        return
    heads = query.reshape(shape.num_kv_heads, group, shape.head_dim) * np.float32(shape.scale)
    results = out.reshape(shape.num_kv_heads, group, shape.head_dim)
    scores = np.empty((group, shape.num_kv_heads, keys.shape[1]), np.float32)
    for member in range(group):
        np.matmul(keys, heads[:, member, :, None], out=scores[member, :, :, None])
    scores /= _exponentiate(scores)
    for member in range(group):
        np.matmul(scores[member, :, None], values, out=results[:, member, None])


def _attend_chunk(
    queries: FloatArray,
    keys: FloatArray,
    values: FloatArray,
    shape: AttentionShape,
    out: FloatArray,
) -> None:
    """Consecutive query tokens, [n, query_width], the last of which sees the whole context."""
    count, context = len(queries), keys.shape[1]
    tile = max(_MAX_SCORES // (shape.num_heads * context), 1)
    for first in range(0, count, tile):
        end = min(first + tile, count)
        seen = context - count + end
        _attend_tile(queries[first:end], keys[:, :seen], values[:, :seen], shape, out[first:end])


def _attend_tile(
    queries: FloatArray,
    keys: FloatArray,
    values: FloatArray,
    shape: AttentionShape,
    out: FloatArray,
) -> None:
    count, context = len(queries), keys.shape[1]
    kv_heads, head_dim = shape.num_kv_heads, shape.head_dim
    group = shape.num_heads // kv_heads
    # [kv head, query head of its group, token]: every product below is one matrix a kv head.
    by_head = queries.reshape(count, kv_heads, group, head_dim).transpose(1, 2, 0, 3)
    scaled = np.multiply(by_head, np.float32(shape.scale), order="C")
    stacked = scaled.reshape(kv_heads, group * count, head_dim)
    scores = np.matmul(stacked, keys.transpose(0, 2, 1))
    if count > 1:
        # The last `count` positions are the queries' own: query i sees i + 1 of them.
        own = scores.reshape(kv_heads, group, count, context)[..., context - count :]
        own[..., np.triu(np.ones((count, count), np.bool_), 1)] = -np.inf
    total = _exponentiate(scores)
    weighted = np.matmul(scores, values)
    weighted /= total
    results = out.reshape(count, kv_heads, group, head_dim)
    results[...] = weighted.reshape(kv_heads, group, count, head_dim).transpose(2, 0, 1, 3)


def _exponentiate(scores: FloatArray) -> FloatArray:
    """Turn scores into unnormalised probabilities in place; returns their sums, last axis kept."""
    scores -= np.maximum.reduce(scores, axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    total: FloatArray = np.add.reduce(scores, axis=-1, keepdims=True)
    return total
