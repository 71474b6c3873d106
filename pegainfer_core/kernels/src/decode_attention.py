# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""Attention of one query token a row over paged keys and values, split over the context.

A grid that is fixed for a batch size takes work items from the step's metadata: one recorded graph
serves short and long contexts. All query heads of one key head go through the tensor cores at once.
"""

import triton
import triton.language as tl


@triton.jit
def attend_items(
    qkv,
    pages,
    items,
    num_items,
    page_starts,
    page_table,
    partial,
    partial_stats,
    stride,
    page_stride,
    num_kv_heads,
    group,
    scale,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PAGE: tl.constexpr,
):
    """One item: the queries of one row and key head, over positions [begin, end).

    `items` holds (row, begin, end, ...); `pages` is one layer's; `scale` includes log2(e). Writes
    the unnormalised sum and (maximum, total) per query head; grid (most items, key heads).
    """
    item = tl.program_id(0)
    if item >= tl.load(num_items):
        return
    kv_head = tl.program_id(1)
    row = tl.load(items + 8 * item)
    begin = tl.load(items + 8 * item + 1)
    end = tl.load(items + 8 * item + 2)
    table = page_table + tl.load(page_starts + row)
    member = tl.arange(0, BLOCK_G)
    lane = tl.arange(0, BLOCK_D)
    heads = kv_head * group + member
    query_mask = (member < group)[:, None] & (lane < HEAD_DIM)[None, :]
    query_at = row.to(tl.int64) * stride + heads[:, None] * HEAD_DIM + lane[None, :]
    query = tl.load(qkv + query_at, mask=query_mask, other=0.0)
    token_stride = num_kv_heads * HEAD_DIM
    plane = PAGE * token_stride
    best = tl.full([BLOCK_G], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_G], tl.float32)
    weighted = tl.zeros([BLOCK_G, BLOCK_D], tl.float32)
    for start in range(begin, end, BLOCK_N):
        position = start + tl.arange(0, BLOCK_N)
        seen = position < end
        page = tl.load(table + position // PAGE, mask=seen, other=0).to(tl.int64)
        place = page * page_stride + (position % PAGE) * token_stride + kv_head * HEAD_DIM
        kv_mask = seen[:, None] & (lane < HEAD_DIM)[None, :]
        kv_at = place[:, None] + lane[None, :]
        keys = tl.load(pages + kv_at, mask=kv_mask, other=0.0)
        values = tl.load(pages + kv_at + plane, mask=kv_mask, other=0.0)
        scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * scale
        scores = tl.where(seen[None, :], scores, float("-inf"))
        new_best = tl.maximum(best, tl.max(scores, axis=1))
        shrink = tl.exp2(best - new_best)
        weights = tl.exp2(scores - new_best[:, None])
        total = total * shrink + tl.sum(weights, axis=1)
        weighted = weighted * shrink[:, None]
        weighted = tl.dot(weights.to(values.dtype), values, weighted, input_precision="ieee")
        best = new_best
    num_heads = num_kv_heads * group
    slot = item.to(tl.int64) * num_heads + heads
    out_at = slot[:, None] * HEAD_DIM + lane[None, :]
    tl.store(partial + out_at, weighted, mask=query_mask)
    tl.store(partial_stats + 2 * slot, best, mask=member < group)
    tl.store(partial_stats + 2 * slot + 1, total, mask=member < group)


@triton.jit
def combine_items(
    partial,
    partial_stats,
    row_items,
    out,
    num_heads,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Join a row's items; a row without items gets zeros; grid (rows, query heads)."""
    row = tl.program_id(0)
    head = tl.program_id(1)
    lane = tl.arange(0, BLOCK_D)
    inside = lane < HEAD_DIM
    first = tl.load(row_items + row)
    last = tl.load(row_items + row + 1)
    best = -float("inf")
    total = 0.0
    weighted = tl.zeros([BLOCK_D], tl.float32)
    for item in tl.range(first, last, loop_unroll_factor=8):
        slot = item.to(tl.int64) * num_heads + head
        item_best = tl.load(partial_stats + 2 * slot)
        item_total = tl.load(partial_stats + 2 * slot + 1)
        values = tl.load(partial + slot * HEAD_DIM + lane, mask=inside, other=0.0)
        new_best = tl.maximum(best, item_best)
        shrink = tl.exp2(best - new_best)
        grow = tl.exp2(item_best - new_best)
        weighted = weighted * shrink + values * grow
        total = total * shrink + item_total * grow
        best = new_best
    result = weighted / tl.where(total > 0, total, 1.0)
    at = (row.to(tl.int64) * num_heads + head) * HEAD_DIM + lane
    tl.store(out + at, result.to(out.dtype.element_ty), mask=inside)
