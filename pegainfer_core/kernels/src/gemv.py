# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""A matrix times a few vectors, at the speed of memory: one output row a program.

The gated activation or the sum with what is there is fused in. Values are rounded where the
separate ops round them.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def gemv(
    x,
    weight,
    out,
    num_outputs,
    CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    GATED: tl.constexpr,
    ADD: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """`out` [ROWS, num_outputs] of `x` [ROWS, k] and `weight` [num_outputs, k].

    k is CHUNKS * BLOCK. GATED takes `weight` as [2 * num_outputs, k], gate rows then up rows, and
    gives silu(gate) * up. ADD adds to `out`. A row's weights are all asked for at once, with
    OVERLAP before the kernel ahead of this one, which does not write them, has ended; grid
    (num_outputs,).
    """
    output = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    kind = out.dtype.element_ty
    first_at = weight + output.to(tl.int64) * (CHUNKS * BLOCK) + lane
    first = ()
    for chunk in tl.static_range(CHUNKS):
        held = tl.load(first_at + chunk * BLOCK, eviction_policy="evict_first")
        first = first + (held,)  # noqa: RUF005
    if GATED:
        second_at = first_at + num_outputs.to(tl.int64) * (CHUNKS * BLOCK)
        second = ()
        for chunk in tl.static_range(CHUNKS):
            held = tl.load(second_at + chunk * BLOCK, eviction_policy="evict_first")
            second = second + (held,)  # noqa: RUF005
    if OVERLAP:
        gdc_launch_dependents()
        gdc_wait()
    for row in tl.static_range(ROWS):
        total = tl.zeros([BLOCK], tl.float32)
        raised = tl.zeros([BLOCK], tl.float32)
        for chunk in tl.static_range(CHUNKS):
            values = tl.load(x + (row * CHUNKS + chunk) * BLOCK + lane).to(tl.float32)
            total += first[chunk].to(tl.float32) * values
            if GATED:
                raised += second[chunk].to(tl.float32) * values
        result = tl.sum(total, axis=0)
        at = out + row * num_outputs + output
        if GATED:
            gate = result.to(kind).to(tl.float32)
            activated = (gate / (1.0 + tl.exp(-gate))).to(kind).to(tl.float32)
            result = activated * tl.sum(raised, axis=0).to(kind).to(tl.float32)
        if ADD:
            result += tl.load(at).to(tl.float32)
        tl.store(at, result.to(kind))
