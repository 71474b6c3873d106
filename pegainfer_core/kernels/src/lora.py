# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""What low-rank adapters add to a product, for tokens that are grouped by adapter.

A tile is up to TILE tokens of one adapter: [slot, first entry of `tokens`, entries, nothing]. Tiles
beyond their number end at once, so that a recorded step can hold more than there are. Tokens in no
tile are neither read nor written. No sum depends on which tokens share a tile. With OVERLAP a
kernel starts before the one ahead of it has ended, and until then reads only tiles and matrices,
which no kernel of a step writes; every program waits, for whoever comes next counts on it. With
AHEAD a matrix is asked for a turn of the loop before it is used: faster for adapters of 16 ranks,
slower where copies of many turns could be on their way.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _tile(tiles, num_tiles, tile):
    """Whether there is such a tile, its slot, its first entry of `tokens`, and how many."""
    exists = tile < tl.load(num_tiles)
    slot = tl.load(tiles + 4 * tile, mask=exists, other=0).to(tl.int64)
    first = tl.load(tiles + 4 * tile + 1, mask=exists, other=0)
    count = tl.load(tiles + 4 * tile + 2, mask=exists, other=0)
    return exists, slot, first, count


@triton.jit
def lora_shrink(
    x,
    down,
    facts,
    tiles,
    num_tiles,
    tokens,
    shrunk,
    width,
    parts,
    rank,
    TILE: tl.constexpr,
    RANKS: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    AHEAD: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Shares of `x` @ A^T; grid (tiles, parts * rank / RANKS * SPLITS).

    `x` [tokens, width]; `down` [slots, parts * rank, width]; `shrunk` [entries of `tokens`, SPLITS,
    parts * rank] float32, whose columns beyond an adapter's own rank stay as they are.
    """
    tile = tl.program_id(0)
    if OVERLAP:
        gdc_launch_dependents()
    exists, slot, first, count = _tile(tiles, num_tiles, tile)
    split = tl.program_id(1) % SPLITS
    begin = tl.program_id(1) // SPLITS * RANKS
    own_rank = tl.load(facts + 2 * slot + 1).to(tl.int32)
    exists = exists & (begin % rank < own_rank)
    entry = tl.arange(0, TILE)
    inside = exists & (entry < count)
    token = tl.load(tokens + first + entry, mask=inside, other=0).to(tl.int64)
    lane = begin + tl.arange(0, RANKS)
    matrix = down + (slot * parts * rank + lane)[:, None] * width
    share = tl.cdiv(tl.cdiv(width, SPLITS), BLOCK) * BLOCK
    start = split * share
    end = tl.minimum(start + share, width)
    column = start + tl.arange(0, BLOCK)
    held = tl.load(matrix + column[None, :], mask=exists & (column < end)[None, :], other=0.0)
    if OVERLAP:
        gdc_wait()
    if exists:
        # Shares are whole blocks: only the last block of all reaches beyond the width.
        read = x + token[:, None] * width
        if AHEAD:
            total = tl.zeros([TILE, RANKS], tl.float32)
            for at in range(start, end, BLOCK):
                column = at + tl.arange(0, BLOCK)
                mask = inside[:, None] & (column < end)[None, :]
                values = tl.load(read + column[None, :], mask=mask, other=0.0)
                total = tl.dot(values, tl.trans(held), total, input_precision="ieee")
                column += BLOCK
                held = tl.load(matrix + column[None, :], mask=(column < end)[None, :], other=0.0)
        else:
            mask = inside[:, None] & (column < end)[None, :]
            values = tl.load(read + column[None, :], mask=mask, other=0.0)
            total = tl.dot(values, tl.trans(held), input_precision="ieee")
            for at in range(start + BLOCK, end, BLOCK):
                column = at + tl.arange(0, BLOCK)
                mask = inside[:, None] & (column < end)[None, :]
                values = tl.load(read + column[None, :], mask=mask, other=0.0)
                held = tl.load(matrix + column[None, :], mask=(column < end)[None, :], other=0.0)
                total = tl.dot(values, tl.trans(held), total, input_precision="ieee")
        row = ((first + entry).to(tl.int64) * SPLITS + split) * (parts * rank)
        tl.store(shrunk + row[:, None] + lane[None, :], total, mask=inside[:, None])


@triton.jit
def _summed(
    rows, distance, lane, inside, SPLITS: tl.constexpr, RANKS: tl.constexpr, TILE: tl.constexpr
):
    """The shares of some ranks of each entry, which lie `distance` apart, added up."""
    total = tl.zeros([TILE, RANKS], tl.float32)
    for split in tl.static_range(SPLITS):
        at = rows + split * distance
        total += tl.load(at[:, None] + lane[None, :], mask=inside[:, None], other=0.0)
    return total


@triton.jit
def lora_expand(
    shrunk,
    up,
    facts,
    tiles,
    num_tiles,
    tokens,
    out,
    num_outputs,
    parts,
    rank,
    width0,
    width1,
    width2,
    TILE: tl.constexpr,
    RANKS: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    AHEAD: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Add scale * shrunk @ B^T to the tokens' rows; grid (tiles, blocks of all parts).

    `shrunk` as `lora_shrink` leaves it, rounded to the type of `out` once its shares are summed;
    `up` [slots, num_outputs, rank]; `out` [tokens, num_outputs]. Part p has width<p> outputs, each
    in blocks of its own.
    """
    tile = tl.program_id(0)
    if OVERLAP:
        gdc_launch_dependents()
    exists, slot, first, count = _tile(tiles, num_tiles, tile)
    scale = tl.load(facts + 2 * slot)
    own_rank = tl.load(facts + 2 * slot + 1).to(tl.int32)
    # Without an adapter nothing was shrunk.
    exists = exists & (own_rank > 0)
    block = tl.program_id(1)
    end0 = tl.cdiv(width0, BLOCK)
    end1 = end0 + tl.cdiv(width1, BLOCK)
    part = (block >= end0).to(tl.int32) + (block >= end1).to(tl.int32)
    begin = tl.where(part == 0, 0, tl.where(part == 1, width0, width0 + width1))
    width = tl.where(part == 0, width0, tl.where(part == 1, width1, width2))
    block -= tl.where(part == 0, 0, tl.where(part == 1, end0, end1))
    column = block * BLOCK + tl.arange(0, BLOCK)
    valid = exists & (column < width)
    entry = tl.arange(0, TILE)
    inside = exists & (entry < count)
    token = tl.load(tokens + first + entry, mask=inside, other=0).to(tl.int64)
    matrix = up + (slot * num_outputs + begin + column)[:, None] * rank
    row = (first + entry).to(tl.int64) * SPLITS * (parts * rank) + part * rank
    lane = tl.arange(0, RANKS)
    held = tl.load(matrix + lane[None, :], mask=valid[:, None], other=0.0)
    if OVERLAP:
        gdc_wait()
    if exists:
        sums = shrunk + row
        if AHEAD:
            total = tl.zeros([TILE, BLOCK], tl.float32)
            for start in range(0, own_rank, RANKS):
                values = _summed(sums, parts * rank, start + lane, inside, SPLITS, RANKS, TILE)
                values = values.to(out.dtype.element_ty)
                total = tl.dot(values, tl.trans(held), total, input_precision="ieee")
                behind = start + RANKS + lane
                more = valid[:, None] & (behind < own_rank)[None, :]
                held = tl.load(matrix + behind[None, :], mask=more, other=0.0)
        else:
            values = _summed(sums, parts * rank, lane, inside, SPLITS, RANKS, TILE)
            values = values.to(out.dtype.element_ty)
            total = tl.dot(values, tl.trans(held), input_precision="ieee")
            for start in range(RANKS, own_rank, RANKS):
                values = _summed(sums, parts * rank, start + lane, inside, SPLITS, RANKS, TILE)
                held = tl.load(matrix + (start + lane)[None, :], mask=valid[:, None], other=0.0)
                values = values.to(out.dtype.element_ty)
                total = tl.dot(values, tl.trans(held), total, input_precision="ieee")
        target = out + token[:, None] * num_outputs + (begin + column)[None, :]
        mask = inside[:, None] & valid[None, :]
        before = tl.load(target, mask=mask, other=0.0).to(tl.float32)
        tl.store(target, (before + scale * total).to(out.dtype.element_ty), mask=mask)
