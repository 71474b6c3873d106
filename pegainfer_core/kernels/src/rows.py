# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""Row-wise kernels: gathering rows, RMSNorm, the gated activation, addition.

Know nothing of requests or layers. Each computes in float32 and rounds where the reference does.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def take_rows(source, indices, out, width, BLOCK: tl.constexpr):
    """`out`[i] = `source`[indices[i]]; grid (rows, cdiv(width, BLOCK))."""
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < width
    chosen = tl.load(indices + row).to(tl.int64)
    values = tl.load(source + chosen * width + columns, mask=mask)
    tl.store(out + row.to(tl.int64) * width + columns, values, mask=mask)


@triton.jit
def rms_norm(x, weight, out, width, eps, BLOCK: tl.constexpr, OVERLAP: tl.constexpr):
    """Normalise rows, rounding to the type of `weight` before it; BLOCK >= width; grid (rows,)."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    scale = tl.load(weight + columns, mask=mask, other=0.0).to(tl.float32)
    if OVERLAP:
        gdc_launch_dependents()
        gdc_wait()
    values = tl.load(x + row * width + columns, mask=mask, other=0.0).to(tl.float32)
    root = tl.sqrt_rn(tl.sum(values * values, axis=0) / width + eps)
    if weight.dtype.element_ty == tl.bfloat16:
        # A product per value is cheaper than a division, and its last bits are rounded away.
        normed = (values * tl.div_rn(1.0, root)).to(tl.bfloat16).to(tl.float32)
    else:
        normed = tl.div_rn(values, root)
    tl.store(out + row * width + columns, (normed * scale).to(out.dtype.element_ty), mask=mask)


@triton.jit
def silu_mul(gate_up, out, width, BLOCK: tl.constexpr):
    """`out` = round(silu(gate)) * up; grid (rows, cdiv(width, BLOCK))."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < width
    gate = tl.load(gate_up + row * 2 * width + columns, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + columns, mask=mask, other=0.0).to(tl.float32)
    if out.dtype.element_ty == tl.bfloat16:
        activated = (gate / (1.0 + tl.exp(-gate))).to(tl.bfloat16).to(tl.float32)
    else:
        activated = tl.div_rn(gate, 1.0 + tl.exp(-gate)).to(out.dtype.element_ty).to(tl.float32)
    tl.store(out + row * width + columns, (activated * up).to(out.dtype.element_ty), mask=mask)


@triton.jit
def add_rows(x, out, count, BLOCK: tl.constexpr):
    """`out` += `x` over `count` values; grid (cdiv(count, BLOCK),)."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = index < count
    total = tl.load(x + index, mask=mask).to(tl.float32) + tl.load(out + index, mask=mask).to(
        tl.float32
    )
    tl.store(out + index, total.to(out.dtype.element_ty), mask=mask)
