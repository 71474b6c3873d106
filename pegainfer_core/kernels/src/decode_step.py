# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""A decode step's attention in one launch: head norms, RoPE, KV write, attention, joining of parts.

The parts of a row's context are joined by whichever program finishes last.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _turn(values, others, lane, position, cos, sin, HALF: tl.constexpr):
    """RoPE of values, `others` being the channel each of them is paired with."""
    turns = lane < 2 * HALF
    angle = position.to(tl.int64) * HALF + lane % HALF
    cosine = tl.load(cos + angle, mask=turns, other=1.0).to(tl.float32)
    sine = tl.load(sin + angle, mask=turns, other=0.0).to(tl.float32)
    return values * cosine + tl.where(lane < HALF, -others, others) * sine


@triton.jit
def _normed(values, factor, scale, kind: tl.constexpr):
    return ((values * factor).to(kind).to(tl.float32) * scale).to(kind).to(tl.float32)


@triton.jit
def decode_attention(
    qkv,
    norm,
    cos,
    sin,
    positions,
    slots,
    pages,
    items,
    num_items,
    row_items,
    page_starts,
    page_table,
    partial,
    partial_stats,
    counters,
    out,
    stride,
    page_stride,
    num_kv_heads,
    group,
    scale,
    eps,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PAGE: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One item, (row, begin, end), for the query heads of one key head.

    `qkv` is the product before norms; `norm` holds a row a query head, then a row a key head;
    `pages` is one layer's; `scale` includes log2(e); `counters` [rows, key heads] are zero, and are
    zero again at the end. Rows without items are left alone; grid (most items, key heads).
    """
    item = tl.program_id(0)
    if item >= tl.load(num_items):
        return
    kv_head = tl.program_id(1)
    kind = qkv.dtype.element_ty
    num_heads = num_kv_heads * group
    row = tl.load(items + 8 * item)
    begin = tl.load(items + 8 * item + 1)
    end = tl.load(items + 8 * item + 2)
    table = page_table + tl.load(page_starts + row)
    position = tl.load(positions + row)
    first_item = tl.load(row_items + row)
    count = tl.load(row_items + row + 1) - first_item
    member = tl.arange(0, BLOCK_G)
    # The few heads are prepared as they are, then repeated to fill up a tile of the tensor cores.
    few = tl.arange(0, BLOCK_H)
    lane = tl.arange(0, BLOCK_D)
    inside = lane < HEAD_DIM
    partner = tl.where(lane < HALF, lane + HALF, tl.where(lane < 2 * HALF, lane - HALF, lane))
    heads = kv_head * group + member
    mask = (member < group)[:, None] & inside[None, :]
    few_mask = (few < group)[:, None] & inside[None, :]
    weight_at = norm + (kv_head * group + few)[:, None] * HEAD_DIM
    own_scale = tl.load(weight_at + lane[None, :], mask=few_mask, other=0.0).to(tl.float32)
    its_scale = tl.load(weight_at + partner[None, :], mask=few_mask, other=0.0).to(tl.float32)
    if OVERLAP:
        gdc_launch_dependents()
        gdc_wait()
    row_at = qkv + row.to(tl.int64) * stride
    query_at = row_at + (kv_head * group + few)[:, None] * HEAD_DIM
    own = tl.load(query_at + lane[None, :], mask=few_mask, other=0.0).to(tl.float32)
    its = tl.load(query_at + partner[None, :], mask=few_mask, other=0.0).to(tl.float32)
    factor = tl.rsqrt(tl.sum(own * own, axis=1) / HEAD_DIM + eps)[:, None]
    own = _normed(own, factor, own_scale, kind)
    its = _normed(its, factor, its_scale, kind)
    query = _turn(own, its, lane[None, :], position, cos, sin, HALF).to(kind)
    if BLOCK_H != BLOCK_G:
        repeated = tl.broadcast_to(query[None, :, :], [BLOCK_G // BLOCK_H, BLOCK_H, BLOCK_D])
        query = tl.reshape(repeated, [BLOCK_G, BLOCK_D])
    token_stride = num_kv_heads * HEAD_DIM
    plane = PAGE * token_stride
    if end == position + 1:
        # This part holds the new token: its key and value go to the pages first.
        key_at = row_at + (num_heads + kv_head) * HEAD_DIM
        key_scale = norm + (num_heads + kv_head) * HEAD_DIM
        key = tl.load(key_at + lane, mask=inside, other=0.0).to(tl.float32)
        mate = tl.load(key_at + partner, mask=inside, other=0.0).to(tl.float32)
        length = tl.rsqrt(tl.sum(key * key, axis=0) / HEAD_DIM + eps)
        key = _normed(
            key, length, tl.load(key_scale + lane, mask=inside, other=0.0).to(tl.float32), kind
        )
        mate = _normed(
            mate, length, tl.load(key_scale + partner, mask=inside, other=0.0).to(tl.float32), kind
        )
        turned = _turn(key, mate, lane, position, cos, sin, HALF).to(kind)
        slot = tl.load(slots + row)
        place = (slot // PAGE).to(tl.int64) * page_stride
        place += (slot % PAGE) * token_stride + kv_head * HEAD_DIM
        tl.store(pages + place + lane, turned, mask=inside)
        value = tl.load(key_at + token_stride + lane, mask=inside)
        tl.store(pages + place + plane + lane, value, mask=inside)
        tl.debug_barrier()
    best = tl.full([BLOCK_G], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_G], tl.float32)
    weighted = tl.zeros([BLOCK_G, BLOCK_D], tl.float32)
    for start in range(begin, end, BLOCK_N):
        at = start + tl.arange(0, BLOCK_N)
        seen = at < end
        page = tl.load(table + at // PAGE, mask=seen, other=0).to(tl.int64)
        place_n = page * page_stride + (at % PAGE) * token_stride + kv_head * HEAD_DIM
        kv_mask = seen[:, None] & inside[None, :]
        kv_at = place_n[:, None] + lane[None, :]
        keys = tl.load(pages + kv_at, mask=kv_mask, other=0.0)
        values = tl.load(pages + kv_at + plane, mask=kv_mask, other=0.0)
        scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * scale
        scores = tl.where(seen[None, :], scores, float("-inf"))
        new_best = tl.maximum(best, tl.max(scores, axis=1))
        shrink = tl.exp2(best - new_best)
        weights = tl.exp2(scores - new_best[:, None])
        total = total * shrink + tl.sum(weights, axis=1)
        weighted = weighted * shrink[:, None]
        weighted = tl.dot(weights.to(kind), values, weighted, input_precision="ieee")
        best = new_best
    out_at = (row.to(tl.int64) * num_heads + heads)[:, None] * HEAD_DIM + lane[None, :]
    if count == 1:
        tl.store(out + out_at, (weighted / total[:, None]).to(kind), mask=mask)
        return
    of_group = member < group
    slots_at = item.to(tl.int64) * num_heads + heads
    tl.store(partial + slots_at[:, None] * HEAD_DIM + lane[None, :], weighted, mask=mask)
    tl.store(partial_stats + 2 * slots_at, best, mask=of_group)
    tl.store(partial_stats + 2 * slots_at + 1, total, mask=of_group)
    tl.debug_barrier()
    counter = counters + row * num_kv_heads + kv_head
    before = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
    if before != count - 1:
        return
    tl.debug_barrier()
    tl.store(counter, 0)
    best = tl.full([BLOCK_G], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_G], tl.float32)
    weighted = tl.zeros([BLOCK_G, BLOCK_D], tl.float32)
    for other in tl.range(first_item, first_item + count, loop_unroll_factor=4):
        from_at = other.to(tl.int64) * num_heads + heads
        its_best = tl.load(
            partial_stats + 2 * from_at, mask=of_group, other=0.0, cache_modifier=".cg"
        )
        its_total = tl.load(
            partial_stats + 2 * from_at + 1, mask=of_group, other=1.0, cache_modifier=".cg"
        )
        part = tl.load(
            partial + from_at[:, None] * HEAD_DIM + lane[None, :],
            mask=mask,
            other=0.0,
            cache_modifier=".cg",
        )
        new_best = tl.maximum(best, its_best)
        shrink = tl.exp2(best - new_best)
        grow = tl.exp2(its_best - new_best)
        weighted = weighted * shrink[:, None] + part * grow[:, None]
        total = total * shrink + its_total * grow
        best = new_best
    tl.store(out + out_at, (weighted / total[:, None]).to(kind), mask=mask)
