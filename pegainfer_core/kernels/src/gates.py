# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""Gates on outputs of attention and of the delta rule."""

import triton
import triton.language as tl


@triton.jit
def sigmoid_mul(gates, out, stride, first, width, BLOCK: tl.constexpr):
    """`out` *= round(sigmoid(gates[:, first:])); grid (rows, cdiv(width, BLOCK))."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < width
    kind = out.dtype.element_ty
    gate = tl.load(gates + row * stride + first + columns, mask=mask, other=0.0).to(tl.float32)
    share = (1.0 / (1.0 + tl.exp(-gate))).to(kind).to(tl.float32)
    value = tl.load(out + row * width + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + row * width + columns, (value * share).to(kind), mask=mask)


@triton.jit
def gated_norm(
    x, gates, norm, out, stride, first_gate, num_heads, eps,
    HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """Each head's RMSNorm times silu of its gates; grid (rows, cdiv(num_heads, HEADS)).

    The gates lie in columns [first_gate, ...) of rows of `stride` values.
    """
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    lane = tl.arange(0, BLOCK)
    mask = (head < num_heads)[:, None] & (lane < HEAD_DIM)[None, :]
    at = head[:, None] * HEAD_DIM + lane[None, :]
    kind = out.dtype.element_ty
    value = tl.load(x + row * num_heads * HEAD_DIM + at, mask=mask, other=0.0).to(tl.float32)
    gate = tl.load(gates + row * stride + first_gate + at, mask=mask, other=0.0).to(tl.float32)
    scale = tl.load(norm + lane, mask=lane < HEAD_DIM, other=0.0).to(tl.float32)
    root = tl.sqrt_rn(tl.sum(value * value, axis=1) / HEAD_DIM + eps)
    normed = tl.div_rn(value, tl.broadcast_to(root[:, None], value.shape))
    normed = normed.to(kind).to(tl.float32)
    normed = (normed * scale[None, :]).to(kind).to(tl.float32)
    result = normed * (gate / (1.0 + tl.exp(-gate)))
    tl.store(out + row * num_heads * HEAD_DIM + at, result.to(kind), mask=mask)
