# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""The gated delta rule of one layer: one token a row, or pieces of rows in the chunked form.

Yang et al., arXiv:2412.06464. Rows of `mixed` hold query heads, key heads, value heads; the
columns of `raw` from `first_strength` on hold b, then a, of each value head. `states` [slots, ...,
heads, KEY_DIM, VALUE_DIM] float32, of one layer, hold the memories; a row at position 0 starts from
zeros, and one whose slot is below 0 does too and leaves nothing. Sums are in float32; so is the
arithmetic between products of tiles, whose factors are of the scratch buffers' type: float32, or
float16 beside bfloat16 activations, for it keeps three more bits.
"""

import triton
import triton.language as tl


@triton.jit
def _log_decay(rate, x):
    """`rate` * softplus(x); log(1 + e) as Kahan has it, to full precision for small e."""
    grown = tl.exp(tl.minimum(x, 20.0))
    total = 1.0 + grown
    below = tl.where(total == 1.0, 1.0, total - 1.0)
    bent = tl.where(total == 1.0, grown, tl.log(total) * (grown / below))
    return rate * tl.where(x > 20.0, x, bent)


@triton.jit
def _squares(heads):
    """Their sum for each row."""
    wide = heads.to(tl.float32)
    return tl.sum(wide * wide, axis=1)


@triton.jit
def delta_step(
    mixed, raw, rate, bias, norm, positions, row_slots, row_saves, states, out,
    raw_stride, first_gate, first_strength, num_key_heads, num_heads, slot_stride, scale, eps,
    KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
    GATED: tl.constexpr,
):  # fmt: skip
    """One token a row; with GATED the norm and the gate of the output too; grid (rows, heads).

    `row_saves` holds two further slots a row, which get the same as the row's own unless below 0.
    """
    row = tl.program_id(0)
    head = tl.program_id(1)
    key_head = head // (num_heads // num_key_heads)
    kind = out.dtype.element_ty
    k_lane = tl.arange(0, BLOCK_K)
    v_lane = tl.arange(0, BLOCK_V)
    k_inside = k_lane < KEY_DIM
    v_inside = v_lane < VALUE_DIM
    slot = tl.load(row_slots + row)
    kept = slot >= 0
    carried = kept & (tl.load(positions + row) > 0)
    within = head * (KEY_DIM * VALUE_DIM) + k_lane[:, None] * VALUE_DIM + v_lane[None, :]
    mask = k_inside[:, None] & v_inside[None, :]
    own = states + slot.to(tl.int64) * slot_stride
    memory = tl.load(own + within, mask=mask & carried, other=0.0)
    conv_width = (2 * num_key_heads) * KEY_DIM + num_heads * VALUE_DIM
    mixed_at = mixed + row.to(tl.int64) * conv_width
    query_at = mixed_at + key_head * KEY_DIM + k_lane
    query = tl.load(query_at, mask=k_inside, other=0.0).to(tl.float32)
    key_at = query_at + num_key_heads * KEY_DIM
    key = tl.load(key_at, mask=k_inside, other=0.0).to(tl.float32)
    value_at = mixed_at + 2 * num_key_heads * KEY_DIM + head * VALUE_DIM + v_lane
    value = tl.load(value_at, mask=v_inside, other=0.0).to(tl.float32)
    query = query / tl.sqrt_rn(tl.sum(query * query, axis=0) + 1e-6) * scale
    key = key / tl.sqrt_rn(tl.sum(key * key, axis=0) + 1e-6)
    raw_at = raw + row.to(tl.int64) * raw_stride
    strength = tl.load(raw_at + first_strength + head).to(tl.float32)
    strength = (1.0 / (1.0 + tl.exp(-strength))).to(kind).to(tl.float32)
    decay = tl.load(raw_at + first_strength + num_heads + head).to(tl.float32)
    decay = _log_decay(tl.load(rate + head), decay + tl.load(bias + head))
    memory = memory * tl.exp(decay)
    known = tl.sum(memory * key[:, None], axis=0)
    memory += key[:, None] * (strength * (value - known))[None, :]
    result = tl.sum(memory * query[:, None], axis=0).to(kind)
    tl.store(own + within, memory, mask=mask & kept)
    first_save = tl.load(row_saves + 2 * row)
    if first_save >= 0:
        tl.store(states + first_save.to(tl.int64) * slot_stride + within, memory, mask=mask)
    second_save = tl.load(row_saves + 2 * row + 1)
    if second_save >= 0:
        tl.store(states + second_save.to(tl.int64) * slot_stride + within, memory, mask=mask)
    if GATED:
        own_scale = tl.load(norm + v_lane, mask=v_inside, other=0.0).to(tl.float32)
        gate_at = raw_at + first_gate + head * VALUE_DIM + v_lane
        gate = tl.load(gate_at, mask=v_inside, other=0.0).to(tl.float32)
        wide = result.to(tl.float32)
        root = tl.sqrt_rn(tl.sum(wide * wide, axis=0) / VALUE_DIM + eps)
        normed = (wide / root).to(kind).to(tl.float32)
        normed = (normed * own_scale).to(kind).to(tl.float32)
        result = (normed * (gate / (1.0 + tl.exp(-gate)))).to(kind)
    out_at = out + row.to(tl.int64) * num_heads * VALUE_DIM + head * VALUE_DIM + v_lane
    tl.store(out_at, result, mask=v_inside)


@triton.jit
def _factor(tile, kind: tl.constexpr):
    """A tile as a factor of a product: at most what the type holds; not-a-numbers stay."""
    if kind == tl.float16:
        tile = tl.clamp(tile, -65504.0, 65504.0, propagate_nan=tl.PropagateNan.ALL)
    return tile.to(kind)


@triton.jit
def _inverse(system, kind: tl.constexpr):
    """The inverse of 1 + X, of a strictly lower triangular X [64, 64].

    Blocks of 16 on the diagonal by substitution, all four at once: D. What is below, L, by the
    series of D L, whose fourth power is zero. A series in powers of X would grow beyond what
    float32 can cancel.
    """
    block = tl.arange(0, 4)
    same = block[:, None, None, None] == block[None, None, :, None]
    parts = tl.reshape(system, [4, 16, 4, 16])
    diagonal = tl.sum(tl.where(same, parts, 0.0), axis=2)
    row = tl.arange(0, 16)[None, :, None]
    column = tl.arange(0, 16)[None, None, :]
    solved = tl.where(row == column, 1.0, 0.0) + tl.zeros([4, 16, 16], tl.float32)
    for i in range(1, 16):
        factors = tl.sum(tl.where(row == i, diagonal, 0.0), axis=1)
        total = tl.sum(factors[:, :, None] * solved, axis=1)
        solved = tl.where(row == i, solved - total[:, None, :], solved)
    near = tl.reshape(tl.where(same, solved[:, :, None, :], 0.0), [64, 64])
    far = tl.reshape(tl.where(same, 0.0, parts), [64, 64])
    near_factor = _factor(near, kind)
    far = _factor(tl.dot(near_factor, _factor(far, kind), input_precision="ieee"), kind)
    twice = _factor(tl.dot(far, far, input_precision="ieee"), kind)
    near = tl.dot(twice, near_factor, near, input_precision="ieee")
    return near - tl.dot(far, _factor(near, kind), input_precision="ieee")


@triton.jit
def relate_pieces(
    mixed, raw, rate, bias, pieces, num_pieces,
    queries, keys, scores, systems, strengths, decays, query_factors, key_factors,
    raw_stride, first_strength, num_key_heads, num_heads, scale,
    KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """How the tokens of a piece, at most 64, stand to each other; grid (most pieces, key heads).

    For each token and key head: `queries` and `keys` [KEY_DIM] of length one. For each value head:
    `scores` [64], decayed, of its query and the piece's keys; `systems` [64], what its write takes
    from those of earlier tokens; `strengths`; `decays`, the sum of log decays from the piece's
    start on; and what its query and key are multiplied with where they meet the memory at the
    piece's start and its end.
    """
    piece = tl.program_id(0)
    if piece >= tl.load(num_pieces):
        return
    key_head = tl.program_id(1)
    group = num_heads // num_key_heads
    first = tl.load(pieces + 8 * piece)
    count = tl.load(pieces + 8 * piece + 1)
    index = tl.arange(0, 64)
    token = (first + index).to(tl.int64)
    exists = index < count
    kind = mixed.dtype.element_ty
    tile_kind = keys.dtype.element_ty
    conv_width = (2 * num_key_heads) * KEY_DIM + num_heads * VALUE_DIM
    query_at = mixed + token[:, None] * conv_width + key_head * KEY_DIM
    key_at = query_at + num_key_heads * KEY_DIM
    # Heads are multiplied as they are, and products brought to length: bfloat16 stays exact.
    key_size = tl.full([64], 1e-6, tl.float32)
    query_size = tl.full([64], 1e-6, tl.float32)
    score = tl.zeros([64, 64], tl.float32)
    system = tl.zeros([64, 64], tl.float32)
    for start in range(0, BLOCK_K, BLOCK):
        lane = start + tl.arange(0, BLOCK)
        mask = exists[:, None] & (lane < KEY_DIM)[None, :]
        key = tl.load(key_at + lane[None, :], mask=mask, other=0.0)
        query = tl.load(query_at + lane[None, :], mask=mask, other=0.0)
        key_size += _squares(key)
        query_size += _squares(query)
        system = tl.dot(key, tl.trans(key), system, input_precision="ieee")
        score = tl.dot(query, tl.trans(key), score, input_precision="ieee")
    key_size = 1.0 / tl.sqrt_rn(key_size)
    query_size = 1.0 / tl.sqrt_rn(query_size)
    key_slot = (token[:, None] * num_key_heads + key_head) * KEY_DIM
    for start in range(0, BLOCK_K, BLOCK):
        lane = start + tl.arange(0, BLOCK)
        mask = exists[:, None] & (lane < KEY_DIM)[None, :]
        key = tl.load(key_at + lane[None, :], mask=mask, other=0.0).to(tl.float32)
        query = tl.load(query_at + lane[None, :], mask=mask, other=0.0).to(tl.float32)
        within = key_slot + lane[None, :]
        tl.store(keys + within, _factor(key * key_size[:, None], tile_kind), mask=mask)
        tl.store(queries + within, _factor(query * query_size[:, None], tile_kind), mask=mask)
    # Only past tokens: a difference the other way round may be too large for exp.
    past = index[:, None] >= index[None, :]
    earlier = index[:, None] > index[None, :]
    for head in range(key_head * group, (key_head + 1) * group):
        raw_at = raw + token * raw_stride + first_strength + head
        strength = tl.load(raw_at, mask=exists, other=0.0).to(tl.float32)
        strength = (1.0 / (1.0 + tl.exp(-strength))).to(kind).to(tl.float32)
        decay = tl.load(raw_at + num_heads, mask=exists, other=0.0).to(tl.float32)
        decay = _log_decay(tl.load(rate + head), decay + tl.load(bias + head))
        decay = tl.where(exists, decay, 0.0)
        # Behind the last token nothing decays, so the sum of all is the last token's.
        whole = tl.sum(decay, axis=0)
        decay = tl.cumsum(decay, axis=0)
        one = token * num_heads + head
        tl.store(strengths + one, strength, mask=exists)
        tl.store(decays + one, decay, mask=exists)
        tl.store(query_factors + one, scale * tl.exp(decay), mask=exists)
        tl.store(key_factors + one, tl.exp(whole - decay), mask=exists)
        apart = tl.exp(tl.where(past, decay[:, None] - decay[None, :], float("-inf")))
        apart = apart * key_size[None, :]
        at = one[:, None] * 64 + index[None, :]
        own = score * apart * (scale * query_size)[:, None]
        tl.store(scores + at, _factor(own, tile_kind), mask=exists[:, None])
        own = system * apart * (strength * key_size)[:, None]
        own = tl.where(earlier, own, 0.0)
        tl.store(systems + at, own, mask=exists[:, None])


@triton.jit
def invert_pieces(
    pieces, num_pieces, systems, strengths, decays, of_values, of_keys, num_heads,
):  # fmt: skip
    """The inverse of 1 + X, X a piece's `systems`; grid (most pieces, heads).

    `of_values` and `of_keys` [64] of each token and head: what a token writes of the values of all,
    and what it takes from the memory by the keys of all.
    """
    piece = tl.program_id(0)
    if piece >= tl.load(num_pieces):
        return
    first = tl.load(pieces + 8 * piece)
    count = tl.load(pieces + 8 * piece + 1)
    index = tl.arange(0, 64)
    exists = index < count
    one = (first + index).to(tl.int64) * num_heads + tl.program_id(1)
    strength = tl.load(strengths + one, mask=exists, other=0.0)
    decay = tl.load(decays + one, mask=exists, other=0.0)
    at = one[:, None] * 64 + index[None, :]
    mask = exists[:, None]
    kind = of_keys.dtype.element_ty
    inverse = _inverse(tl.load(systems + at, mask=mask, other=0.0), kind) * strength[None, :]
    tl.store(of_values + at, _factor(inverse, kind), mask=mask)
    tl.store(of_keys + at, _factor(inverse * tl.exp(decay)[None, :], kind), mask=mask)


@triton.jit
def write_pieces(
    mixed, pieces, num_pieces, keys, of_values, of_keys, reads, writes, num_key_heads, num_heads,
    KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """What a piece's tokens write without a memory, and how it takes part; grid (pieces, heads).

    `writes` [VALUE_DIM] of each token and head, and `reads` [KEY_DIM], by which it depends on the
    memory at the piece's start.
    """
    piece = tl.program_id(0)
    if piece >= tl.load(num_pieces):
        return
    head = tl.program_id(1)
    key_head = head // (num_heads // num_key_heads)
    first = tl.load(pieces + 8 * piece)
    count = tl.load(pieces + 8 * piece + 1)
    index = tl.arange(0, 64)
    token = (first + index).to(tl.int64)
    exists = index < count
    kind = keys.dtype.element_ty
    one = (token * num_heads + head)[:, None]
    conv_width = (2 * num_key_heads) * KEY_DIM + num_heads * VALUE_DIM
    value_at = mixed + token[:, None] * conv_width
    value_at += 2 * num_key_heads * KEY_DIM + head * VALUE_DIM
    key_at = keys + (token[:, None] * num_key_heads + key_head) * KEY_DIM
    factor = tl.load(of_values + one * 64 + index[None, :], mask=exists[:, None], other=0.0)
    for start in range(0, BLOCK_V, BLOCK):
        lane = start + tl.arange(0, BLOCK)[None, :]
        mask = exists[:, None] & (lane < VALUE_DIM)
        value = tl.load(value_at + lane, mask=mask, other=0.0).to(tl.float32)
        write = tl.dot(factor, _factor(value, kind), input_precision="ieee")
        tl.store(writes + one * VALUE_DIM + lane, write, mask=mask)
    factor = tl.load(of_keys + one * 64 + index[None, :], mask=exists[:, None], other=0.0)
    for start in range(0, BLOCK_K, BLOCK):
        lane = start + tl.arange(0, BLOCK)[None, :]
        mask = exists[:, None] & (lane < KEY_DIM)
        key = tl.load(key_at + lane, mask=mask, other=0.0)
        read = tl.dot(factor, key, input_precision="ieee")
        tl.store(reads + one * KEY_DIM + lane, _factor(read, kind), mask=mask)


@triton.jit
def scan_pieces(
    pieces, row_pieces,
    queries, keys, reads, writes, scores, decays, query_factors, key_factors,
    states, out, num_key_heads, num_heads, slot_stride,
    KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """Take a row's memory through its pieces, in order, BLOCK_V channels of the values at a time.

    `row_pieces` holds the first of each row's pieces, and the end; a row may have none. Grid
    (rows * heads, cdiv(VALUE_DIM, BLOCK_V)).
    """
    row = tl.program_id(0) // num_heads
    head = tl.program_id(0) % num_heads
    begin = tl.load(row_pieces + row)
    stop = tl.load(row_pieces + row + 1)
    if begin >= stop:
        return
    key_head = head // (num_heads // num_key_heads)
    slot = tl.load(pieces + 8 * begin + 3)
    carried = (slot >= 0) & (tl.load(pieces + 8 * begin + 4) == 0)
    tile_kind = reads.dtype.element_ty
    index = tl.arange(0, 64)
    k_lane = tl.arange(0, BLOCK_K)
    v_lane = tl.program_id(1) * BLOCK_V + tl.arange(0, BLOCK_V)
    k_inside = k_lane < KEY_DIM
    v_inside = v_lane < VALUE_DIM
    mask = k_inside[:, None] & v_inside[None, :]
    within = head * (KEY_DIM * VALUE_DIM) + k_lane[:, None] * VALUE_DIM + v_lane[None, :]
    own = states + slot.to(tl.int64) * slot_stride
    memory = tl.load(own + within, mask=mask & carried, other=0.0)
    for piece in range(begin, stop):
        first = tl.load(pieces + 8 * piece)
        count = tl.load(pieces + 8 * piece + 1)
        exists = index < count
        k_mask = exists[:, None] & k_inside[None, :]
        v_mask = exists[:, None] & v_inside[None, :]
        token = (first + index).to(tl.int64)
        one = token * num_heads + head
        at = one[:, None]
        key_at = (token * num_key_heads + key_head)[:, None] * KEY_DIM + k_lane[None, :]
        write = tl.load(writes + at * VALUE_DIM + v_lane[None, :], mask=v_mask, other=0.0)
        read = tl.load(reads + at * KEY_DIM + k_lane[None, :], mask=k_mask, other=0.0)
        query = tl.load(queries + key_at, mask=k_mask, other=0.0)
        key = tl.load(keys + key_at, mask=k_mask, other=0.0)
        score = tl.load(scores + at * 64 + index[None, :], mask=exists[:, None], other=0.0)
        query_factor = tl.load(query_factors + one, mask=exists, other=0.0)
        key_factor = tl.load(key_factors + one, mask=exists, other=0.0)
        whole = tl.load(decays + (first + count - 1) * num_heads + head, mask=count > 0, other=0.0)
        known = _factor(memory, tile_kind)
        write -= tl.dot(read, known, input_precision="ieee")
        result = tl.dot(query, known, input_precision="ieee") * query_factor[:, None]
        result = tl.dot(score, _factor(write, tile_kind), result, input_precision="ieee")
        out_at = out + at * VALUE_DIM + v_lane[None, :]
        tl.store(out_at, result.to(out.dtype.element_ty), mask=v_mask)
        write = _factor(write * key_factor[:, None], tile_kind)
        memory = tl.dot(tl.trans(key), write, memory * tl.exp(whole), input_precision="ieee")
        save = tl.load(pieces + 8 * piece + 5)
        if save >= 0:
            tl.store(states + save.to(tl.int64) * slot_stride + within, memory, mask=mask)
    tl.store(own + within, memory, mask=mask & (slot >= 0))
