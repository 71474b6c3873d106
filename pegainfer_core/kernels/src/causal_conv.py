# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""Causal depthwise convolution along the rows of a step, with a silu behind it.

The inputs before a row's first token lie in the row's slot of `states` [slots, ..., TAPS - 1,
width], of one layer, oldest first. Decoding rows are convolved and their slots moved on in one
launch; of longer rows every piece is convolved first, and a second launch moves the slots on, for
pieces of one row may need what lies there.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _activated(total, kind: tl.constexpr):
    """silu, rounded before and behind as the reference does."""
    rounded = total.to(kind).to(tl.float32)
    return (rounded / (1.0 + tl.exp(-rounded))).to(kind)


@triton.jit
def conv_step(
    x,
    taps,
    positions,
    row_slots,
    row_saves,
    states,
    out,
    stride,
    width,
    slot_stride,
    TAPS: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One token a row; grid (rows, cdiv(width, BLOCK)).

    A row at position 0 starts from zeros; one whose slot is below 0 does too, and leaves nothing.
    `row_saves` holds two further slots a row, which get the same as the row's own unless below 0.
    """
    if OVERLAP:
        gdc_launch_dependents()
    row = tl.program_id(0)
    lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = lane < width
    slot = tl.load(row_slots + row)
    kept = slot >= 0
    carried = kept & (tl.load(positions + row) > 0)
    first_save = tl.load(row_saves + 2 * row)
    second_save = tl.load(row_saves + 2 * row + 1)
    own = states + slot.to(tl.int64) * slot_stride
    first = states + first_save.to(tl.int64) * slot_stride
    second = states + second_save.to(tl.int64) * slot_stride
    held = ()
    for tap in tl.static_range(TAPS - 1):
        value = tl.load(own + tap * width + lane, mask=inside & carried, other=0.0)
        held = held + (value,)  # noqa: RUF005
    if OVERLAP:
        # Of one step, nothing but this kernel writes a layer's slots.
        gdc_wait()
    value = tl.load(x + row.to(tl.int64) * stride + lane, mask=inside, other=0.0)
    held = held + (value,)  # noqa: RUF005
    # Threads store what others of this program have read.
    tl.debug_barrier()
    total = tl.zeros([BLOCK], tl.float32)
    for tap in tl.static_range(TAPS):
        value = held[tap]
        weight = tl.load(taps + tap * width + lane, mask=inside, other=0.0).to(tl.float32)
        total += value.to(tl.float32) * weight
        if tap > 0:
            at = (tap - 1) * width + lane
            tl.store(own + at, value, mask=inside & kept)
            tl.store(first + at, value, mask=inside & (first_save >= 0))
            tl.store(second + at, value, mask=inside & (second_save >= 0))
    kind = out.dtype.element_ty
    tl.store(out + row.to(tl.int64) * width + lane, _activated(total, kind), mask=inside)


@triton.jit
def conv_pieces(
    x,
    taps,
    pieces,
    num_pieces,
    states,
    out,
    stride,
    width,
    slot_stride,
    TAPS: tl.constexpr,
    TOKENS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Pieces of rows, at most TOKENS long; grid (most pieces, cdiv(width, BLOCK)).

    `pieces` holds for each: first token, how many, first token of its row, the row's slot, whether
    the row starts from zeros, and the slot for a copy of the state behind it.
    """
    piece = tl.program_id(0)
    if piece >= tl.load(num_pieces):
        return
    at_piece = pieces + 8 * piece
    first = tl.load(at_piece)
    count = tl.load(at_piece + 1)
    row_first = tl.load(at_piece + 2)
    slot = tl.load(at_piece + 3)
    carried = (slot >= 0) & (tl.load(at_piece + 4) == 0)
    own = states + slot.to(tl.int64) * slot_stride
    lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    token = first + tl.arange(0, TOKENS)
    inside = lane < width
    exists = tl.arange(0, TOKENS) < count
    mask = exists[:, None] & inside[None, :]
    total = tl.zeros([TOKENS, BLOCK], tl.float32)
    for tap in tl.static_range(TAPS):
        source = token - (TAPS - 1) + tap
        here = source >= row_first
        value = tl.load(
            x + source.to(tl.int64)[:, None] * stride + lane[None, :],
            mask=mask & here[:, None],
            other=0.0,
        ).to(tl.float32)
        if tap < TAPS - 1:
            # Only a row's first tokens look further back than the step goes.
            before = source - row_first + TAPS - 1
            value += tl.load(
                own + before[:, None] * width + lane[None, :],
                mask=mask & (carried & (source < row_first))[:, None],
                other=0.0,
            ).to(tl.float32)
        weight = tl.load(taps + tap * width + lane, mask=inside, other=0.0).to(tl.float32)
        total += value * weight[None, :]
    kind = out.dtype.element_ty
    out_at = out + token.to(tl.int64)[:, None] * width + lane[None, :]
    tl.store(out_at, _activated(total, kind), mask=mask)


@triton.jit
def _keep(x, stride, row_first, end, before, target, width, lane, mask, TAPS: tl.constexpr):
    """Store the last TAPS - 1 inputs before token `end`; those before the row are in `before`."""
    slots = tl.arange(0, before.shape[0])
    for tap in tl.static_range(TAPS - 1):
        source = end - (TAPS - 1) + tap
        is_here = source >= row_first
        value = tl.load(x + source.to(tl.int64) * stride + lane, mask=mask & is_here, other=0.0)
        # Small: no value is lost by going through float32.
        chosen = (slots == source - row_first + TAPS - 1)[:, None]
        old = tl.sum(tl.where(chosen, before, 0.0), axis=0)
        value = tl.where(is_here, value.to(tl.float32), old)
        tl.store(target + tap * width + lane, value.to(target.dtype.element_ty), mask=mask)


@triton.jit
def keep_inputs(
    x,
    pieces,
    row_pieces,
    states,
    stride,
    width,
    slot_stride,
    TAPS: tl.constexpr,
    HISTORY: tl.constexpr,
    LOOK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Move rows' slots on, and copies where pieces ask for some; grid (rows, cdiv(width, BLOCK)).

    `row_pieces` holds the first of each row's pieces, and the end; a row may have none. HISTORY is
    the power of two from TAPS - 1 on.
    """
    row = tl.program_id(0)
    begin = tl.load(row_pieces + row)
    stop = tl.load(row_pieces + row + 1)
    if begin >= stop:
        return
    at_piece = pieces + 8 * begin
    row_first = tl.load(at_piece + 2)
    slot = tl.load(at_piece + 3)
    carried = (slot >= 0) & (tl.load(at_piece + 4) == 0)
    own = states + slot.to(tl.int64) * slot_stride
    lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = lane < width
    age = tl.arange(0, HISTORY)
    before = tl.load(
        own + age[:, None] * width + lane[None, :],
        mask=(carried & (age < TAPS - 1))[:, None] & inside[None, :],
        other=0.0,
    ).to(tl.float32)
    # Threads store what others of this program have read.
    tl.debug_barrier()
    # Few pieces ask for a copy: many are looked at at once.
    many = tl.arange(0, LOOK)
    for start in range(begin, stop, LOOK):
        asked = tl.load(pieces + 8 * (start + many) + 5, mask=start + many < stop, other=-1)
        if tl.max(asked, axis=0) >= 0:
            for piece in range(start, tl.minimum(start + LOOK, stop)):
                at_piece = pieces + 8 * piece
                save = tl.load(at_piece + 5)
                if save >= 0:
                    end = tl.load(at_piece) + tl.load(at_piece + 1)
                    target = states + save.to(tl.int64) * slot_stride
                    _keep(x, stride, row_first, end, before, target, width, lane, inside, TAPS)
    at_piece = pieces + 8 * (stop - 1)
    end = tl.load(at_piece) + tl.load(at_piece + 1)
    _keep(x, stride, row_first, end, before, own, width, lane, inside & (slot >= 0), TAPS)
