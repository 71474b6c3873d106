# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""What happens to heads between the QKV product and the attention: norm, RoPE, KV write.

One kernel, whose parts can be left out, serves the fused op and the three primitive ones.
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

    `norm` holds a row of weights for each of them. With WRITE, head num_a + i is key head i of
    `num_b`, its value head lies `num_b` heads behind it, and both go to the row's slot in `pages`
    (of one layer) instead of back to `x`.
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
        values = tl.div_rn(values, root).to(out_type).to(tl.float32) * own
        others = tl.div_rn(others, root).to(out_type).to(tl.float32) * its
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
