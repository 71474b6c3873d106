# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""Causal attention of many query tokens a row over paged keys and values.

Rows may differ in length and may continue from any position: the context before a row's own tokens
is already in its pages.
"""

import triton
import triton.language as tl


@triton.jit
def _attend_block(
    query,
    weighted,
    best,
    total,
    pages,
    table,
    start,
    limits,
    end,
    kv_offset,
    token_stride,
    plane,
    page_stride,
    scale,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PAGE: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Add keys [start, start + BLOCK_N) to the running softmax."""
    position = start + tl.arange(0, BLOCK_N)
    lane = tl.arange(0, BLOCK_D)
    seen = position < end
    if MASKED:
        page = tl.load(table + position // PAGE, mask=seen, other=0).to(tl.int64)
    else:
        page = tl.load(table + position // PAGE).to(tl.int64)
    place = page * page_stride + (position % PAGE) * token_stride + kv_offset
    kv_at = place[:, None] + lane[None, :]
    if MASKED:
        kv_mask = seen[:, None] & (lane < HEAD_DIM)[None, :]
        keys = tl.load(pages + kv_at, mask=kv_mask, other=0.0)
        values = tl.load(pages + kv_at + plane, mask=kv_mask, other=0.0)
    elif BLOCK_D != HEAD_DIM:
        keys = tl.load(pages + kv_at, mask=(lane < HEAD_DIM)[None, :], other=0.0)
        values = tl.load(pages + kv_at + plane, mask=(lane < HEAD_DIM)[None, :], other=0.0)
    else:
        keys = tl.load(pages + kv_at)
        values = tl.load(pages + kv_at + plane)
    scores = tl.dot(query, tl.trans(keys), input_precision="ieee")
    if MASKED:
        scores = tl.where(position[None, :] <= limits[:, None], scores, float("-inf"))
    new_best = tl.maximum(best, tl.max(scores, axis=1) * scale)
    shrink = tl.exp2(best - new_best)
    weights = tl.exp2(scores * scale - new_best[:, None])
    total = total * shrink + tl.sum(weights, axis=1)
    weighted = weighted * shrink[:, None]
    weighted = tl.dot(weights.to(values.dtype), values, weighted, input_precision="ieee")
    return weighted, new_best, total


@triton.jit
def attend_tiles(
    qkv,
    pages,
    tiles,
    row_starts,
    context_lens,
    page_starts,
    page_table,
    out,
    stride,
    page_stride,
    num_kv_heads,
    group,
    scale,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PAGE: tl.constexpr,
    PARTS: tl.constexpr,
):
    """BLOCK_M query tokens of one row and one query head: a part of a tile of PARTS * BLOCK_M.

    `tiles` holds (row, first query of the tile in its row); `pages` is one layer's; `scale`
    includes log2(e); grid (tiles * PARTS, query heads).
    """
    tile = tl.program_id(0) // PARTS
    head = tl.program_id(1)
    row = tl.load(tiles + 2 * tile)
    first = tl.load(tiles + 2 * tile + 1) + tl.program_id(0) % PARTS * BLOCK_M
    row_start = tl.load(row_starts + row)
    count = tl.load(row_starts + row + 1) - row_start
    if first >= count:
        return
    context = tl.load(context_lens + row)
    table = page_table + tl.load(page_starts + row)
    index = first + tl.arange(0, BLOCK_M)
    lane = tl.arange(0, BLOCK_D)
    query_mask = (index < count)[:, None] & (lane < HEAD_DIM)[None, :]
    token = (row_start + index).to(tl.int64)
    query_at = token[:, None] * stride + head * HEAD_DIM + lane[None, :]
    query = tl.load(qkv + query_at, mask=query_mask, other=0.0)
    limits = context - count + index
    token_stride = num_kv_heads * HEAD_DIM
    plane = PAGE * token_stride
    kv_offset = (head // group) * HEAD_DIM
    best = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    weighted = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    # Positions up to the first query's own are seen by all of the tile's queries.
    common = (context - count + first + 1) // BLOCK_N * BLOCK_N
    end = tl.minimum(context, context - count + first + BLOCK_M)
    for start in range(0, common, BLOCK_N):
        weighted, best, total = _attend_block(
            query, weighted, best, total, pages, table, start, limits, end, kv_offset,
            token_stride, plane, page_stride, scale,
            HEAD_DIM, BLOCK_D, BLOCK_N, PAGE, False,
        )  # fmt: skip
    for start in range(common, end, BLOCK_N):
        weighted, best, total = _attend_block(
            query, weighted, best, total, pages, table, start, limits, end, kv_offset,
            token_stride, plane, page_stride, scale,
            HEAD_DIM, BLOCK_D, BLOCK_N, PAGE, True,
        )  # fmt: skip
    result = weighted / total[:, None]
    out_at = token[:, None] * (num_kv_heads * group * HEAD_DIM) + head * HEAD_DIM + lane[None, :]
    tl.store(out + out_at, result.to(out.dtype.element_ty), mask=query_mask)
