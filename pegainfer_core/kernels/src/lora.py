# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""What low-rank adapters add to a product, for tokens that are grouped by adapter.

A tile is up to TILE tokens of one adapter: [slot, first entry of `tokens`, entries, nothing]. Tiles
beyond their number end at once, so that a recorded step can hold more than there are. Tokens in no
tile are neither read nor written. No sum depends on which tokens share a tile.
"""

import triton
import triton.language as tl


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
):
    """Shares of `x` @ A^T; grid (tiles, parts * rank / RANKS * SPLITS).

    `x` [tokens, width]; `down` [slots, parts * rank, width]; `shrunk` [entries of `tokens`, SPLITS,
    parts * rank] float32, whose columns beyond an adapter's own rank stay as they are.
    """
    tile = tl.program_id(0)
    if tile < tl.load(num_tiles):
        slot = tl.load(tiles + 4 * tile).to(tl.int64)
        first = tl.load(tiles + 4 * tile + 1)
        count = tl.load(tiles + 4 * tile + 2)
        split = tl.program_id(1) % SPLITS
        begin = tl.program_id(1) // SPLITS * RANKS
        own_rank = tl.load(facts + 2 * slot + 1).to(tl.int32)
        if begin % rank < own_rank:
            entry = tl.arange(0, TILE)
            inside = entry < count
            token = tl.load(tokens + first + entry, mask=inside, other=0).to(tl.int64)
            lane = begin + tl.arange(0, RANKS)
            matrix = down + (slot * parts * rank + lane)[:, None] * width
            share = tl.cdiv(tl.cdiv(width, SPLITS), BLOCK) * BLOCK
            end = tl.minimum((split + 1) * share, width)
            # Shares are whole blocks: only the last block of all reaches beyond the width.
            total = tl.zeros([TILE, RANKS], tl.float32)
            for start in range(split * share, end, BLOCK):
                column = start + tl.arange(0, BLOCK)
                valid = column < width
                values = tl.load(
                    x + token[:, None] * width + column[None, :],
                    mask=inside[:, None] & valid[None, :],
                    other=0.0,
                )
                held = tl.load(matrix + column[None, :], mask=valid[None, :], other=0.0)
                total = tl.dot(values, tl.trans(held), total, input_precision="ieee")
            at = ((first + entry).to(tl.int64) * SPLITS + split) * (parts * rank)
            tl.store(shrunk + at[:, None] + lane[None, :], total, mask=inside[:, None])


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
):
    """Add scale * shrunk @ B^T to the tokens' rows; grid (tiles, blocks of all parts).

    `shrunk` as `lora_shrink` leaves it, rounded to the type of `out` once its shares are summed;
    `up` [slots, num_outputs, rank]; `out` [tokens, num_outputs]. Part p has width<p> outputs, each
    in blocks of its own.
    """
    tile = tl.program_id(0)
    if tile < tl.load(num_tiles):
        slot = tl.load(tiles + 4 * tile).to(tl.int64)
        first = tl.load(tiles + 4 * tile + 1)
        count = tl.load(tiles + 4 * tile + 2)
        scale = tl.load(facts + 2 * slot)
        own_rank = tl.load(facts + 2 * slot + 1).to(tl.int32)
        block = tl.program_id(1)
        end0 = tl.cdiv(width0, BLOCK)
        end1 = end0 + tl.cdiv(width1, BLOCK)
        part = (block >= end0).to(tl.int32) + (block >= end1).to(tl.int32)
        begin = tl.where(part == 0, 0, tl.where(part == 1, width0, width0 + width1))
        width = tl.where(part == 0, width0, tl.where(part == 1, width1, width2))
        block -= tl.where(part == 0, 0, tl.where(part == 1, end0, end1))
        column = block * BLOCK + tl.arange(0, BLOCK)
        valid = column < width
        entry = tl.arange(0, TILE)
        inside = entry < count
        token = tl.load(tokens + first + entry, mask=inside, other=0).to(tl.int64)
        matrix = up + (slot * num_outputs + begin + column)[:, None] * rank
        row = (first + entry).to(tl.int64) * SPLITS * (parts * rank) + part * rank
        total = tl.zeros([TILE, BLOCK], tl.float32)
        for start in range(0, own_rank, RANKS):
            lane = start + tl.arange(0, RANKS)
            sums = tl.zeros([TILE, RANKS], tl.float32)
            for split in tl.static_range(SPLITS):
                at = row + split * (parts * rank)
                sums += tl.load(
                    shrunk + at[:, None] + lane[None, :], mask=inside[:, None], other=0.0
                )
            held = tl.load(matrix + lane[None, :], mask=valid[:, None], other=0.0)
            narrow = sums.to(out.dtype.element_ty)
            total = tl.dot(narrow, tl.trans(held), total, input_precision="ieee")
        target = out + token[:, None] * num_outputs + (begin + column)[None, :]
        mask = inside[:, None] & valid[None, :]
        before = tl.load(target, mask=mask, other=0.0).to(tl.float32)
        tl.store(target, (before + scale * total).to(out.dtype.element_ty), mask=mask)
