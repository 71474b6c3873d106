# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""A matrix times a few vectors, at the speed of memory: one output row a program.

What comes before and after in a decoder is fused in: the norm of the vectors, the gated activation,
the sum with what is there. Values are rounded where the separate ops round them.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def gemv(
    x,
    norm,
    weight,
    out,
    num_outputs,
    k,
    eps,
    CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    NORM: tl.constexpr,
    GATED: tl.constexpr,
    ADD: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """`out` [ROWS, num_outputs] of `x` [ROWS, k] and `weight`; grid (num_outputs,).

    NORM takes the RMSNorm of `x` by `norm` [k]. GATED takes `weight` as [2 * num_outputs, K], gate
    rows then up rows, and gives silu(gate) * up. ADD adds to `out`. With OVERLAP the weights, which
    no kernel before this one writes, are on their way before that kernel has ended.
    """
    output = tl.program_id(0)
    column = tl.arange(0, CHUNKS)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    mask = column < k
    row_at = output.to(tl.int64) * k
    first = tl.load(weight + row_at + column, mask=mask, other=0.0)
    if GATED:
        second_at = row_at + num_outputs.to(tl.int64) * k
        second = tl.load(weight + second_at + column, mask=mask, other=0.0)
    if NORM:
        scale = tl.load(norm + column, mask=mask, other=0.0).to(tl.float32)
    if OVERLAP:
        gdc_launch_dependents()
        gdc_wait()
    kind = out.dtype.element_ty
    for row in tl.static_range(ROWS):
        values = tl.load(x + row * k + column, mask=mask, other=0.0).to(tl.float32)
        if NORM:
            square = tl.sum(tl.sum(values * values, axis=0), axis=0)
            values = values / tl.sqrt(square / k + eps)
            values = (values.to(kind).to(tl.float32) * scale).to(kind).to(tl.float32)
        result = tl.sum(tl.sum(first.to(tl.float32) * values, axis=0), axis=0)
        at = out + row * num_outputs + output
        if GATED:
            up = tl.sum(tl.sum(second.to(tl.float32) * values, axis=0), axis=0)
            gate = result.to(kind).to(tl.float32)
            activated = (gate / (1.0 + tl.exp(-gate))).to(kind).to(tl.float32)
            result = activated * up.to(kind).to(tl.float32)
        if ADD:
            result += tl.load(at).to(tl.float32)
        tl.store(at, result.to(kind))
