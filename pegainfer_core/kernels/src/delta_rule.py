# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""The gated delta rule of one layer: one token a row, or pieces of rows in the chunked form.

Yang et al., arXiv:2412.06464. Rows of `mixed` hold query heads, key heads, value heads; the
columns of `raw` from `first_strength` on hold b, then a, of each value head. `states` [slots, ...,
heads, KEY_DIM, VALUE_DIM] float32, of one layer, hold the memories; a row at position 0 starts from
zeros, and one whose slot is below 0 does too and leaves nothing. All arithmetic is in float32; with
FAST, products of tiles take float32 in parts of ten bits.
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
def _block(at, row: tl.constexpr, column: tl.constexpr, stride, count):
    """Where a block of 16 by 16 lies, and which of its rows exist."""
    lane = tl.arange(0, 16)
    rows = 16 * row + lane[:, None]
    return at + rows * stride + 16 * column + lane[None, :], rows < count


@triton.jit
def _load_block(at, row: tl.constexpr, column: tl.constexpr, stride, count):
    where, mask = _block(at, row, column, stride, count)
    return tl.load(where, mask=mask, other=0.0)


@triton.jit
def _store_block(at, row: tl.constexpr, column: tl.constexpr, stride, count, values):
    where, mask = _block(at, row, column, stride, count)
    tl.store(where, values, mask=mask)


@triton.jit
def _invert(at, stride, count, FAST: tl.constexpr):
    """Replace X, strictly lower triangular [64, 64] at `at`, by the inverse of 1 + X.

    Blocks of 16 on the diagonal by substitution, all four at once, and what is below by products of
    them. A series in powers of X would grow beyond what float32 can cancel.
    """
    precision: tl.constexpr = "tf32x3" if FAST else "ieee"
    tl.debug_barrier()
    block = tl.arange(0, 4)[:, None]
    lane = tl.arange(0, 16)
    solved = tl.where(lane[None, :, None] == lane[None, None, :], 1.0, 0.0)
    solved += tl.zeros([4, 16, 16], tl.float32)
    for i in range(1, 16):
        row = 16 * block + i
        known = at + row * stride + 16 * block + lane[None, :]
        factors = tl.load(known, mask=(row < count) & (lane[None, :] < i), other=0.0)
        total = tl.sum(factors[:, :, None] * solved, axis=1)
        solved = tl.where(lane[None, :, None] == i, solved - total[:, None, :], solved)
    tl.debug_barrier()
    row = 16 * block[:, :, None] + lane[None, :, None]
    place = at + row * stride + 16 * block[:, :, None] + lane[None, None, :]
    tl.store(place, solved, mask=row < count)
    tl.debug_barrier()
    i0 = _load_block(at, 0, 0, stride, count)
    i1 = _load_block(at, 1, 1, stride, count)
    i2 = _load_block(at, 2, 2, stride, count)
    i3 = _load_block(at, 3, 3, stride, count)
    x21 = _load_block(at, 2, 1, stride, count)
    x31 = _load_block(at, 3, 1, stride, count)
    x32 = _load_block(at, 3, 2, stride, count)
    y10 = tl.dot(_load_block(at, 1, 0, stride, count), i0, input_precision=precision)
    y10 = -tl.dot(i1, y10, input_precision=precision)
    y21 = -tl.dot(i2, tl.dot(x21, i1, input_precision=precision), input_precision=precision)
    y20 = tl.dot(_load_block(at, 2, 0, stride, count), i0, input_precision=precision)
    y20 = -tl.dot(i2, tl.dot(x21, y10, y20, input_precision=precision), input_precision=precision)
    y30 = tl.dot(_load_block(at, 3, 0, stride, count), i0, input_precision=precision)
    y30 = tl.dot(x31, y10, y30, input_precision=precision)
    y30 = -tl.dot(i3, tl.dot(x32, y20, y30, input_precision=precision), input_precision=precision)
    y31 = tl.dot(x31, i1, input_precision=precision)
    y31 = -tl.dot(i3, tl.dot(x32, y21, y31, input_precision=precision), input_precision=precision)
    y32 = -tl.dot(i3, tl.dot(x32, i2, input_precision=precision), input_precision=precision)
    tl.debug_barrier()
    _store_block(at, 1, 0, stride, count, y10)
    _store_block(at, 2, 0, stride, count, y20)
    _store_block(at, 2, 1, stride, count, y21)
    _store_block(at, 3, 0, stride, count, y30)
    _store_block(at, 3, 1, stride, count, y31)
    _store_block(at, 3, 2, stride, count, y32)
    tl.debug_barrier()


@triton.jit
def prepare_pieces(
    mixed, raw, rate, bias, pieces, num_pieces, reads, writes, scores, decays, systems,
    raw_stride, first_strength, num_key_heads, num_heads, scale,
    KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """What a piece of at most 64 tokens can know without the memory; grid (most pieces, heads).

    For each token and head: `reads` [KEY_DIM], by which what the token writes depends on the
    memory; `writes` [VALUE_DIM], the rest of it; `scores` [64], decayed, of its query and the
    piece's keys; and `decays`, the sum of log decays from the piece's start on. `systems` [64] is
    for scratch.
    """
    piece = tl.program_id(0)
    if piece >= tl.load(num_pieces):
        return
    precision: tl.constexpr = "tf32" if FAST else "ieee"
    head = tl.program_id(1)
    key_head = head // (num_heads // num_key_heads)
    first = tl.load(pieces + 8 * piece)
    count = tl.load(pieces + 8 * piece + 1)
    index = tl.arange(0, 64)
    token = (first + index).to(tl.int64)
    exists = index < count
    kind = mixed.dtype.element_ty
    raw_at = raw + token * raw_stride + first_strength + head
    strength = tl.load(raw_at, mask=exists, other=0.0).to(tl.float32)
    strength = (1.0 / (1.0 + tl.exp(-strength))).to(kind).to(tl.float32)
    strength = tl.where(exists, strength, 0.0)
    decay = tl.load(raw_at + num_heads, mask=exists, other=0.0).to(tl.float32)
    decay = _log_decay(tl.load(rate + head), decay + tl.load(bias + head))
    decay = tl.cumsum(tl.where(exists, decay, 0.0), axis=0)
    tl.store(decays + token * num_heads + head, decay, mask=exists)
    conv_width = (2 * num_key_heads) * KEY_DIM + num_heads * VALUE_DIM
    mixed_at = mixed + token[:, None] * conv_width
    key_at = mixed_at + (num_key_heads + key_head) * KEY_DIM
    query_at = mixed_at + key_head * KEY_DIM
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
        system = tl.dot(key, tl.trans(key), system, input_precision=precision)
        score = tl.dot(query, tl.trans(key), score, input_precision=precision)
    key_size = tl.sqrt_rn(key_size)
    # Only past tokens: a difference the other way round may be too large for exp.
    past = index[:, None] >= index[None, :]
    apart = tl.exp(tl.where(past, decay[:, None] - decay[None, :], float("-inf")))
    apart = apart / key_size[None, :]
    slot = token[:, None] * num_heads + head
    score = score * apart * (scale / tl.sqrt_rn(query_size))[:, None]
    tl.store(scores + slot * 64 + index[None, :], score, mask=exists[:, None])
    system = system * apart * (strength / key_size)[:, None]
    system = tl.where(index[:, None] > index[None, :], system, 0.0)
    system_at = systems + slot * 64 + index[None, :]
    tl.store(system_at, system, mask=exists[:, None])
    _invert(systems + (first.to(tl.int64) * num_heads + head) * 64, num_heads * 64, count, FAST)
    inverse = tl.load(system_at, mask=exists[:, None], other=0.0)
    inverse = inverse * strength[None, :]
    value_at = mixed_at + 2 * num_key_heads * KEY_DIM + head * VALUE_DIM
    for start in range(0, BLOCK_V, BLOCK):
        lane = start + tl.arange(0, BLOCK)
        mask = exists[:, None] & (lane < VALUE_DIM)[None, :]
        value = tl.load(value_at + lane[None, :], mask=mask, other=0.0).to(tl.float32)
        write = tl.dot(inverse, value, input_precision=precision)
        tl.store(writes + slot * VALUE_DIM + lane[None, :], write, mask=mask)
    inverse = inverse * (tl.exp(decay) / key_size)[None, :]
    for start in range(0, BLOCK_K, BLOCK):
        lane = start + tl.arange(0, BLOCK)
        mask = exists[:, None] & (lane < KEY_DIM)[None, :]
        value = tl.load(key_at + lane[None, :], mask=mask, other=0.0).to(tl.float32)
        read = tl.dot(inverse, value, input_precision=precision)
        tl.store(reads + slot * KEY_DIM + lane[None, :], read, mask=mask)


@triton.jit
def scan_pieces(
    mixed, pieces, row_pieces, reads, writes, scores, decays, states, out,
    num_key_heads, num_heads, slot_stride, scale,
    KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    """Take a row's memory through its pieces, in order, BLOCK_V channels of the values at a time.

    `row_pieces` holds the first of each row's pieces, and the end; a row may have none. Grid
    (rows * heads, cdiv(VALUE_DIM, BLOCK_V)).
    """
    precision: tl.constexpr = "tf32" if FAST else "ieee"
    row = tl.program_id(0) // num_heads
    head = tl.program_id(0) % num_heads
    begin = tl.load(row_pieces + row)
    stop = tl.load(row_pieces + row + 1)
    if begin >= stop:
        return
    key_head = head // (num_heads // num_key_heads)
    slot = tl.load(pieces + 8 * begin + 3)
    carried = (slot >= 0) & (tl.load(pieces + 8 * begin + 4) == 0)
    index = tl.arange(0, 64)
    k_lane = tl.arange(0, BLOCK_K)
    v_lane = tl.program_id(1) * BLOCK_V + tl.arange(0, BLOCK_V)
    k_inside = k_lane < KEY_DIM
    v_inside = v_lane < VALUE_DIM
    mask = k_inside[:, None] & v_inside[None, :]
    within = head * (KEY_DIM * VALUE_DIM) + k_lane[:, None] * VALUE_DIM + v_lane[None, :]
    own = states + slot.to(tl.int64) * slot_stride
    memory = tl.load(own + within, mask=mask & carried, other=0.0)
    conv_width = (2 * num_key_heads) * KEY_DIM + num_heads * VALUE_DIM
    for piece in range(begin, stop):
        first = tl.load(pieces + 8 * piece)
        count = tl.load(pieces + 8 * piece + 1)
        save = tl.load(pieces + 8 * piece + 5)
        token = (first + index).to(tl.int64)
        exists = index < count
        k_mask = exists[:, None] & k_inside[None, :]
        v_mask = exists[:, None] & v_inside[None, :]
        at = token[:, None] * num_heads + head
        decay = tl.load(decays + token * num_heads + head, mask=exists, other=0.0)
        whole = tl.sum(tl.where(index == count - 1, decay, 0.0), axis=0)
        write = tl.load(writes + at * VALUE_DIM + v_lane[None, :], mask=v_mask, other=0.0)
        read = tl.load(reads + at * KEY_DIM + k_lane[None, :], mask=k_mask, other=0.0)
        write -= tl.dot(read, memory, input_precision=precision)
        mixed_at = mixed + token[:, None] * conv_width + key_head * KEY_DIM + k_lane[None, :]
        query = tl.load(mixed_at, mask=k_mask, other=0.0).to(tl.float32)
        result = tl.dot(query, memory, input_precision=precision)
        result = result * (tl.exp(decay) * scale / tl.sqrt_rn(_squares(query) + 1e-6))[:, None]
        score = tl.load(scores + at * 64 + index[None, :], mask=exists[:, None], other=0.0)
        result = tl.dot(score, write, result, input_precision=precision)
        out_at = out + token[:, None] * (num_heads * VALUE_DIM) + head * VALUE_DIM
        tl.store(out_at + v_lane[None, :], result.to(out.dtype.element_ty), mask=v_mask)
        key = tl.load(mixed_at + num_key_heads * KEY_DIM, mask=k_mask, other=0.0).to(tl.float32)
        left = tl.exp(tl.where(exists, whole - decay, 0.0)) / tl.sqrt_rn(_squares(key) + 1e-6)
        memory = memory * tl.exp(whole)
        write = write * left[:, None]
        memory = tl.dot(tl.trans(key), write, memory, input_precision=precision)
        if save >= 0:
            tl.store(states + save.to(tl.int64) * slot_stride + within, memory, mask=mask)
    tl.store(own + within, memory, mask=mask & (slot >= 0))
