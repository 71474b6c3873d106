# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""The best token of each row of logits, in two launches: parts of rows, then rows.

A row's best is written as (value, index) in float32, which holds every index below 2^24. Not a
number counts as infinite, so that the host sees that something is wrong.
"""

import triton
import triton.language as tl


@triton.jit
def argmax_parts(logits, part_values, part_indices, vocab, part_width, BLOCK: tl.constexpr):
    """Best of columns [part * part_width, (part + 1) * part_width); grid (rows, parts)."""
    row = tl.program_id(0)
    part = tl.program_id(1)
    begin = part * part_width
    end = tl.minimum(begin + part_width, vocab)
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    index = tl.full([BLOCK], 0, tl.int32) + begin
    base = logits + row.to(tl.int64) * vocab
    for start in range(begin, end, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        values = tl.load(base + columns, mask=columns < end, other=float("-inf"))
        values = tl.where(values != values, float("inf"), values)
        better = values > best
        best = tl.where(better, values, best)
        index = tl.where(better, columns, index)
    top = tl.max(best, axis=0)
    first = tl.min(tl.where(best == top, index, 2147483647), axis=0)
    at = row * tl.num_programs(1) + part
    tl.store(part_values + at, top)
    tl.store(part_indices + at, first.to(tl.float32))


@triton.jit
def argmax_rows(part_values, part_indices, best, num_parts, BLOCK: tl.constexpr):
    """Best of a row's parts; BLOCK >= num_parts; grid (rows,)."""
    row = tl.program_id(0)
    part = tl.arange(0, BLOCK)
    mask = part < num_parts
    values = tl.load(part_values + row * num_parts + part, mask=mask, other=float("-inf"))
    indices = tl.load(part_indices + row * num_parts + part, mask=mask, other=16777216.0)
    top = tl.max(values, axis=0)
    tl.store(best + 2 * row, top)
    tl.store(best + 2 * row + 1, tl.min(tl.where(values == top, indices, 16777216.0), axis=0))
