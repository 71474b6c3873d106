# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""Causal attention of many query tokens a row over paged keys and values.

Rows may differ in length and may continue from any position: the context before a row's own tokens
is already in its pages. The query heads of one key head share a tile; its keys may be split among
programs.
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
    # A query that sees none of a part's keys so far has no maximum to subtract.
    base = tl.where(new_best == float("-inf"), 0.0, new_best) if MASKED else new_best
    shrink = tl.exp2(best - base)
    weights = tl.exp2(scores * scale - base[:, None])
    total = total * shrink + tl.sum(weights, axis=1)
    weighted = weighted * shrink[:, None]
    weighted = tl.dot(weights.to(values.dtype), values, weighted, input_precision="ieee")
    return weighted, new_best, total


@triton.jit
def attend_tiles(
    qkv,
    pages,
    items,
    num_items,
    page_table,
    sums,
    stats,
    joined,
    out,
    stride,
    page_stride,
    num_kv_heads,
    scale,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PAGE: tl.constexpr,
    PARTS: tl.constexpr,
):
    """BLOCK_M of the ROWS rows of a tile: query tokens times the query heads of one key head.

    `items` holds for each piece of work: first query token in the step, how many, position of the
    first, first key, end of the keys, page table, first part of the tile, part | parts << 16. The
    parts of a tile are joined in order by whichever ends last; `joined` [parts, key heads, PARTS]
    is zero, and zero again at the end; `sums` and `stats` have ROWS rows a part and key head.
    `pages` is one layer's; `scale` includes log2(e); grid (most pieces * PARTS, key heads).
    """
    item = tl.program_id(0) // PARTS
    if item >= tl.load(num_items):
        return
    kv_head = tl.program_id(1)
    at_item = items + 8 * item
    first_token = tl.load(at_item)
    num_rows = tl.load(at_item + 1) * GROUP
    first_row = tl.program_id(0) % PARTS * BLOCK_M
    if first_row >= num_rows:
        return
    position = tl.load(at_item + 2)
    begin = tl.load(at_item + 3)
    end = tl.load(at_item + 4)
    table = page_table + tl.load(at_item + 5)
    row = first_row + tl.arange(0, BLOCK_M)
    lane = tl.arange(0, BLOCK_D)
    head = kv_head * GROUP + row % GROUP
    token = (first_token + row // GROUP).to(tl.int64)
    mask = (row < num_rows)[:, None] & (lane < HEAD_DIM)[None, :]
    query_at = token[:, None] * stride + head[:, None] * HEAD_DIM + lane[None, :]
    query = tl.load(qkv + query_at, mask=mask, other=0.0)
    limits = position + row // GROUP
    token_stride = num_kv_heads * HEAD_DIM
    plane = PAGE * token_stride
    kv_offset = kv_head * HEAD_DIM
    best = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    weighted = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    # Positions up to the first query's own are seen by all of the tile's queries.
    common = tl.minimum((position + first_row // GROUP + 1) // BLOCK_N * BLOCK_N, end)
    common = tl.maximum(common, begin)
    for start in range(begin, common, BLOCK_N):
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
    kind = out.dtype.element_ty
    out_at = (token * (num_kv_heads * GROUP) + head)[:, None] * HEAD_DIM + lane[None, :]
    first_part = tl.load(at_item + 6)
    packed = tl.load(at_item + 7)
    num_parts = packed >> 16
    if num_parts == 1:
        tl.store(out + out_at, (weighted / total[:, None]).to(kind), mask=mask)
        return
    step = (num_kv_heads * ROWS).to(tl.int64)
    of_tile = (first_part * num_kv_heads + kv_head).to(tl.int64) * ROWS + row
    slot = of_tile + (packed & 0xFFFF) * step
    tl.store(sums + slot[:, None] * HEAD_DIM + lane[None, :], weighted, mask=mask)
    tl.store(stats + 2 * slot, best, mask=row < num_rows)
    tl.store(stats + 2 * slot + 1, total, mask=row < num_rows)
    tl.debug_barrier()
    counter = joined + (first_part * num_kv_heads + kv_head) * PARTS + tl.program_id(0) % PARTS
    before = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
    if before != num_parts - 1:
        return
    tl.debug_barrier()
    tl.store(counter, 0)
    best = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    weighted = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for part in range(0, num_parts):
        slot = of_tile + part * step
        its_best = tl.load(stats + 2 * slot, mask=row < num_rows, other=0.0, cache_modifier=".cg")
        its_total = tl.load(
            stats + 2 * slot + 1, mask=row < num_rows, other=1.0, cache_modifier=".cg"
        )
        its = tl.load(
            sums + slot[:, None] * HEAD_DIM + lane[None, :],
            mask=mask,
            other=0.0,
            cache_modifier=".cg",
        )
        new_best = tl.maximum(best, its_best)
        safe = tl.where(new_best == float("-inf"), 0.0, new_best)
        shrink = tl.exp2(best - safe)
        grow = tl.exp2(its_best - safe)
        weighted = weighted * shrink[:, None] + its * grow[:, None]
        total = total * shrink + its_total * grow
        best = new_best
    tl.store(out + out_at, (weighted / total[:, None]).to(kind), mask=mask)
