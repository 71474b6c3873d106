# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""What happens to heads between the QKV product and the attention: norm, RoPE, KV write.

One kernel, whose parts can be left out, serves the primitive ops and unusual heads; another does
everything, several heads at a time.
"""

import triton
import triton.language as tl


@triton.jit
def prepare_heads(
    x,
    norm,
    cos,
    sin,
    positions,
    slots,
    pages,
    stride,
    first_head,
    num_a,
    num_b,
    page_stride,
    eps,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK: tl.constexpr,
    PAGE: tl.constexpr,
    NORM: tl.constexpr,
    ROPE: tl.constexpr,
    WRITE: tl.constexpr,
):
    """Work on heads [first_head, first_head + num_a + num_b) of each row of `x`, in place.

    `norm` holds a row of weights for each of them, in whose type normed values are rounded. With
    WRITE, head num_a + i is key head i of `num_b`, its value head lies `num_b` heads behind it, and
    both go to the row's slot in `pages` (of one layer) instead of back to `x`.
    HALF is half the rotary width. One warp a program, so that its loads precede its stores;
    grid (rows, num_a + num_b).
    """
    row = tl.program_id(0)
    head = tl.program_id(1)
    lane = tl.arange(0, BLOCK)
    inside = lane < HEAD_DIM
    base = x + row.to(tl.int64) * stride + (first_head + head) * HEAD_DIM
    out_type = x.dtype.element_ty
    values = tl.load(base + lane, mask=inside, other=0.0).to(tl.float32)
    partner = tl.where(lane < HALF, lane + HALF, tl.where(lane < 2 * HALF, lane - HALF, lane))
    others = tl.load(base + partner, mask=inside, other=0.0).to(tl.float32)
    if NORM:
        root = tl.sqrt_rn(tl.sum(values * values, axis=0) / HEAD_DIM + eps)
        weight = norm + head * HEAD_DIM
        own = tl.load(weight + lane, mask=inside, other=0.0).to(tl.float32)
        its = tl.load(weight + partner, mask=inside, other=0.0).to(tl.float32)
        norm_type = norm.dtype.element_ty
        values = tl.div_rn(values, root).to(norm_type).to(tl.float32) * own
        others = tl.div_rn(others, root).to(norm_type).to(tl.float32) * its
        values = values.to(out_type).to(tl.float32)
        others = others.to(out_type).to(tl.float32)
    if ROPE:
        position = tl.load(positions + row).to(tl.int64)
        angle = position * HALF + lane % HALF
        turns = lane < 2 * HALF
        cosine = tl.load(cos + angle, mask=turns, other=1.0).to(tl.float32)
        sine = tl.load(sin + angle, mask=turns, other=0.0).to(tl.float32)
        values = values * cosine + tl.where(lane < HALF, -others, others) * sine
    result = values.to(out_type)
    if WRITE:
        if head >= num_a:
            slot = tl.load(slots + row)
            key_head = head - num_a
            place = (slot // PAGE).to(tl.int64) * page_stride
            place += ((slot % PAGE) * num_b + key_head) * HEAD_DIM
            tl.store(pages + place + lane, result, mask=inside)
            stored = tl.load(base + num_b * HEAD_DIM + lane, mask=inside)
            plane = PAGE * num_b * HEAD_DIM
            tl.store(pages + place + plane + lane, stored, mask=inside)
        else:
            tl.store(base + lane, result, mask=inside)
    else:
        tl.store(base + lane, result, mask=inside)


@triton.jit
def prepare_row(
    x,
    norm,
    cos,
    sin,
    positions,
    slots,
    pages,
    stride,
    num_heads,
    num_kv_heads,
    page_stride,
    eps,
    HALF: tl.constexpr,
    BLOCK: tl.constexpr,
    HEADS: tl.constexpr,
    PAGE: tl.constexpr,
):
    """Norm, RoPE and KV write of HEADS heads of a row, for heads that turn as a whole.

    Queries go back to `x`, keys and values to the row's slot in `pages` (of one layer). HALF is
    half a head, BLOCK its power of two. A thread has both channels of a pair, so that what it
    stores is what it loaded; grid (rows, cdiv(query and key heads, HEADS)).
    """
    row = tl.program_id(0)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    lane = tl.arange(0, BLOCK)
    kind = x.dtype.element_ty
    exists = head < num_heads + num_kv_heads
    mask = exists[:, None] & (lane < HALF)[None, :]
    at = head[:, None] * (2 * HALF) + lane[None, :]
    base = x + row.to(tl.int64) * stride
    low = tl.load(base + at, mask=mask, other=0.0).to(tl.float32)
    high = tl.load(base + at + HALF, mask=mask, other=0.0).to(tl.float32)
    low_scale = tl.load(norm + at, mask=mask, other=0.0).to(tl.float32)
    high_scale = tl.load(norm + at + HALF, mask=mask, other=0.0).to(tl.float32)
    angle = tl.load(positions + row).to(tl.int64) * HALF + lane
    cosine = tl.load(cos + angle, mask=lane < HALF, other=0.0).to(tl.float32)[None, :]
    sine = tl.load(sin + angle, mask=lane < HALF, other=0.0).to(tl.float32)[None, :]
    square = tl.sum(low * low, axis=1) + tl.sum(high * high, axis=1)
    factor = tl.div_rn(1.0, tl.sqrt_rn(square / (2 * HALF) + eps))[:, None]
    low = ((low * factor).to(kind).to(tl.float32) * low_scale).to(kind).to(tl.float32)
    high = ((high * factor).to(kind).to(tl.float32) * high_scale).to(kind).to(tl.float32)
    turned_low = (low * cosine - high * sine).to(kind)
    turned_high = (high * cosine + low * sine).to(kind)
    is_query = mask & (head < num_heads)[:, None]
    tl.store(base + at, turned_low, mask=is_query)
    tl.store(base + at + HALF, turned_high, mask=is_query)
    if tl.program_id(1) * HEADS + HEADS > num_heads:
        is_key = mask & (head >= num_heads)[:, None]
        slot = tl.load(slots + row)
        place = (slot // PAGE).to(tl.int64) * page_stride
        place += ((slot % PAGE) * num_kv_heads - num_heads) * (2 * HALF)
        tl.store(pages + place + at, turned_low, mask=is_key)
        tl.store(pages + place + at + HALF, turned_high, mask=is_key)
        value_at = base + num_kv_heads * (2 * HALF) + at
        plane = PAGE * num_kv_heads * (2 * HALF)
        value = tl.load(value_at, mask=is_key)
        tl.store(pages + place + plane + at, value, mask=is_key)
        value = tl.load(value_at + HALF, mask=is_key)
        tl.store(pages + place + plane + at + HALF, value, mask=is_key)
