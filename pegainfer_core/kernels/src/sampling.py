# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""Choosing a token from each row of logits, exactly as `pegainfer_core.sampling` does on the host.

Rows are described by words (`sampling.choice_words`). A row is cut into parts, a program each, and
goes through at most six launches:

    peaks    best, lowest finite and group maxima of a part
    bounds   best of the row; a bound that at least top_k logits reach
    sums     mass of a part; approximate mass above edges, first coarse ones, then fine ones
    collect  list of the tokens that matter: those above the bound, or those between two edges
    draw     the exact cuts, from the list or, where it is too long, the whole row, and the draw

Edges are hints: `draw` checks with exact sums that the cut lies between them. Nothing here may be
contracted to fused multiply-adds: masses must have the host's bits (see `sampling.mass`).
"""

import triton
import triton.language as tl

# Words of a row.
_FLAGS = tl.constexpr(0)
_SLOT = tl.constexpr(1)
_FALLBACK = tl.constexpr(2)
_TOP_K = tl.constexpr(3)
_SCALE = tl.constexpr(4)
_FLOOR = tl.constexpr(5)
_TOP_P = tl.constexpr(6)
_SEED = tl.constexpr(8)
_POSITION = tl.constexpr(10)
_SAMPLE = tl.constexpr(11)
_SOURCE = tl.constexpr(12)
_HISTORY = tl.constexpr(14)

_DRAWS = tl.constexpr(1)
_NEGATIVE = tl.constexpr(float("-inf"))
_INFINITE = tl.constexpr(float("inf"))
_LARGEST = tl.constexpr(3.4028234663852886e38)
_KEY_NEGATIVE = tl.constexpr(-2139095041)
_KEY_LOWEST = tl.constexpr(-(2**31))
_MOST = tl.constexpr(2**31 - 1)
_ROUNDER = tl.constexpr(12582912.0)
_HINT_MARGIN = tl.constexpr(1e-4)


@triton.jit
def _wide(words, FIELD: tl.constexpr):
    low = tl.load(words + FIELD).to(tl.uint32, bitcast=True).to(tl.uint64)
    high = tl.load(words + FIELD + 1).to(tl.uint32, bitcast=True).to(tl.uint64)
    return low | (high << 32)


@triton.jit
def _real(words, FIELD: tl.constexpr):
    return tl.load(words + FIELD).to(tl.float32, bitcast=True)


@triton.jit
def _source(logits, words, row, vocab, ALIGNED: tl.constexpr):
    """Where a row's logits lie: those that rules were applied to, if any, else the model's."""
    own = _wide(words, _SOURCE).to(tl.int64)
    given = logits.to(tl.int64) + row.to(tl.int64) * vocab * 4
    base = tl.where(own != 0, own, given).to(tl.pointer_type(tl.float32))
    if ALIGNED:
        base = tl.multiple_of(base, 16)
    return base


@triton.jit
def _load(base, columns, mask):
    values = tl.load(base + columns, mask=mask, other=_NEGATIVE)
    values = tl.where(values != values, _NEGATIVE, values)
    return tl.minimum(values, _LARGEST)


@triton.jit
def _key(values):
    """Integers in the order of the values; both zeros are equal."""
    bits = (values + 0.0).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _exp2_mass(y):
    """floor(2**(y + 42)), every step rounded as on the host."""
    y = tl.maximum(y, -64.0)
    whole = (y + _ROUNDER) - _ROUNDER
    f = y - whole
    value = f * 0.0001540352968731895
    value = (value + 0.0013333557872101665) * f
    value = (value + 0.009618128649890423) * f
    value = (value + 0.05550410971045494) * f
    value = (value + 0.24022650718688965) * f
    value = (value + 0.6931471824645996) * f
    value = value + 1.0
    # The low bits of a sum with the rounder are the integer.
    power = (((whole + _ROUNDER).to(tl.int32, bitcast=True) + 169) << 23).to(
        tl.float32, bitcast=True
    )
    return tl.floor(value * power)


@triton.jit
def _mass(values, peak, scale):
    return _exp2_mass((values - peak) * scale)


@triton.jit
def _halves(masses):
    """Integers (high, low) with mass = high * 2**21 + low, which 32 bits can sum up."""
    shifted = masses * 4.76837158203125e-07 + _ROUNDER
    low = (masses - (shifted - _ROUNDER) * 2097152.0) + _ROUNDER
    offset = 0x4B400000
    return shifted.to(tl.int32, bitcast=True) - offset, low.to(tl.int32, bitcast=True) - offset


@triton.jit
def _joined(high, low):
    """The sum of masses from the sums of their halves."""
    return tl.sum((high.to(tl.int64) << 21) + low.to(tl.int64), axis=0)


@triton.jit
def peaks(
    logits, words, part_peaks, part_ids, part_lows, maxima, vocab, num_ids, part_width,
    BLOCK: tl.constexpr, LANES: tl.constexpr, WORDS: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """Best and lowest finite logit of a part, and maxima of its interleaved groups.

    The best of a part that holds NaN is infinite, which no other part's is.
    """
    row, part = tl.program_id(0), tl.program_id(1)
    words += row * WORDS
    base = _source(logits, words, row, vocab, ALIGNED)
    begin = part * part_width
    end = tl.minimum(begin + part_width, num_ids)
    best = tl.full([BLOCK], _NEGATIVE, tl.float32)
    low = tl.full([BLOCK], _LARGEST, tl.float32)
    index = tl.full([BLOCK], 0, tl.int32) + begin
    broken = tl.zeros([BLOCK], tl.int32)
    for start in range(begin, end, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        given = tl.load(base + columns, mask=columns < end, other=_NEGATIVE)
        broken |= (given != given).to(tl.int32)
        values = tl.minimum(tl.where(given != given, _NEGATIVE, given), _LARGEST)
        better = values > best
        best = tl.where(better, values, best)
        index = tl.where(better, columns, index)
        low = tl.minimum(low, tl.where(values > _NEGATIVE, values, _LARGEST))
    top = tl.max(best, axis=0)
    at = row * tl.num_programs(1) + part
    tl.store(part_peaks + at, tl.where(tl.max(broken, axis=0) > 0, _INFINITE, top))
    tl.store(part_ids + at, tl.min(tl.where(best == top, index, _MOST), axis=0))
    tl.store(part_lows + at, tl.min(low, axis=0))
    if tl.load(words + _TOP_K) > 0:
        groups = tl.max(tl.reshape(best, [BLOCK // LANES, LANES]), axis=0)
        tl.store(maxima + at * LANES + tl.arange(0, LANES), groups)


@triton.jit
def best(
    words, part_peaks, part_ids, chosen, next_ids, num_parts, PARTS: tl.constexpr,
    WORDS: tl.constexpr,
):  # fmt: skip
    """The choice of rows that all take their best logit; grid (rows,)."""
    row = tl.program_id(0)
    words += row * WORDS
    peak, index = _best_part(part_peaks, part_ids, row, num_parts, PARTS)
    token = tl.where(peak > _NEGATIVE, index, tl.load(words + _FALLBACK))
    _choose(words, row, token, peak == _INFINITE, chosen, next_ids)


@triton.jit
def _best_part(part_peaks, part_ids, row, num_parts, PARTS: tl.constexpr):
    part = tl.arange(0, PARTS)
    tops = tl.load(part_peaks + row * num_parts + part, mask=part < num_parts, other=_NEGATIVE)
    ids = tl.load(part_ids + row * num_parts + part, mask=part < num_parts, other=_MOST)
    peak = tl.max(tops, axis=0)
    return peak, tl.min(tl.where(tops == peak, ids, _MOST), axis=0)


@triton.jit
def _choose(words, row, token, broken, chosen, next_ids):
    """Hand a token to the host and to the next step, and count it for penalties.

    Where a logit was NaN the host gets -1; the next step, which may be under way, any token.
    """
    tl.store(chosen + row, tl.where(broken, -1, token))
    slot = tl.load(words + _SLOT)
    if slot > 0:
        tl.store(next_ids + slot - 1, token)
    history = _wide(words, _HISTORY).to(tl.int64)
    if history != 0:
        count = history.to(tl.pointer_type(tl.int32)) + token
        tl.store(count, tl.load(count) + 2)


@triton.jit
def bounds(
    logits, words, part_peaks, part_ids, part_lows, maxima, row_peaks, row_ids, row_lows,
    row_bounds, row_counts, hits, list_ids, list_values, vocab, num_ids, part_width, num_parts,
    PARTS: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr, FEW: tl.constexpr,
    LIST: tl.constexpr, WORDS: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """What a row's later programs must know of all of it; grid (rows,).

    Where the bound is reached in a few groups, they are listed here and now: the bound that is
    left for `collect` is infinite then.
    """
    row = tl.program_id(0)
    words += row * WORDS
    peak, index = _best_part(part_peaks, part_ids, row, num_parts, PARTS)
    part = tl.arange(0, PARTS)
    lows = tl.load(part_lows + row * num_parts + part, mask=part < num_parts, other=_LARGEST)
    # Nothing is to be drawn from a row that holds NaN.
    broken = peak == _INFINITE
    peak = tl.where(broken, _NEGATIVE, peak)
    tl.store(row_peaks + row, peak)
    tl.store(row_ids + row, tl.where(broken, -1, index))
    tl.store(row_lows + row, tl.min(lows, axis=0))
    num_listed = tl.full([], 0, tl.int32)
    left = tl.full([], _NEGATIVE, tl.float32)
    top_k = tl.load(words + _TOP_K)
    bound = tl.full([], _KEY_NEGATIVE, tl.int64)
    if (top_k > 0) & (top_k <= num_parts * LANES) & (peak > _NEGATIVE):
        group = tl.arange(0, PARTS * LANES)
        mask = group < num_parts * LANES
        tops = tl.load(maxima + row * num_parts * LANES + group, mask=mask, other=_NEGATIVE)
        keys = _key(tops)
        beyond = _key(peak).to(tl.int64) + 1
        # Any value that enough groups reach will do.
        reached = num_parts * LANES
        while (beyond - bound > 1) & (reached > top_k + top_k // 8):
            middle = (bound + beyond) >> 1
            count = tl.sum((mask & (keys >= middle.to(tl.int32))).to(tl.int32), axis=0)
            enough = count >= top_k
            reached = tl.where(enough, count, reached)
            bound = tl.where(enough, middle, bound)
            beyond = tl.where(enough, beyond, middle)
        key = bound.to(tl.int32)
        bits = key ^ ((key >> 31) & 0x7FFFFFFF)
        left = bits.to(tl.float32, bitcast=True)
        hit = mask & (keys >= key)
        num_hits = tl.sum(hit.to(tl.int32), axis=0)
        if num_hits <= FEW:
            hits += row.to(tl.int64) * num_parts * LANES
            place = tl.cumsum(hit.to(tl.int32), axis=0) - 1
            tl.store(hits + place, group.to(tl.int64), mask=hit)
            tl.debug_barrier()
            base = _source(logits, words, row, vocab, ALIGNED)
            num_listed = _list_groups(
                base, hits, num_hits, left, list_ids + row.to(tl.int64) * LIST,
                list_values + row.to(tl.int64) * LIST, num_ids, part_width, LANES, BLOCK, LIST,
            )  # fmt: skip
            left = tl.full([], float("inf"), tl.float32)
    tl.store(row_counts + row, num_listed)
    tl.store(row_bounds + row, left)


@triton.jit
def _list_groups(
    base, hits, num_hits, bound, list_ids, list_values, num_ids, part_width, LANES: tl.constexpr,
    BLOCK: tl.constexpr, LIST: tl.constexpr,
):  # fmt: skip
    """List the tokens of some groups that reach the bound; how many there are."""
    depth = part_width // LANES
    num_listed = tl.full([], 0, tl.int32)
    for first in range(0, num_hits * depth, BLOCK):
        member = first + tl.arange(0, BLOCK)
        mask = member < num_hits * depth
        group = tl.load(hits + member // depth, mask=mask, other=0).to(tl.int32)
        columns = group // LANES * part_width + member % depth * LANES + group % LANES
        mask = mask & (columns < num_ids)
        values = _load(base, columns, mask)
        listed = mask & (values >= bound)
        entry = num_listed + tl.cumsum(listed.to(tl.int32), axis=0) - 1
        fits = listed & (entry < LIST)
        tl.store(list_ids + entry, columns, mask=fits)
        tl.store(list_values + entry, values, mask=fits)
        num_listed += tl.sum(listed.to(tl.int32), axis=0)
    return num_listed


@triton.jit
def _edges(
    sums, totals, row, num_parts, top_p, high, low, PARTS: tl.constexpr, EDGES: tl.constexpr
):
    """The two edges between which the nucleus ends, as far as float sums can tell."""
    part = tl.arange(0, PARTS)
    edge = tl.arange(0, EDGES)
    mask = part < num_parts
    total = tl.sum(tl.load(totals + row * num_parts + part, mask=mask, other=0), axis=0)
    limit = total.to(tl.float32) * top_p.to(tl.float32)
    at = (row * num_parts + part)[:, None] * EDGES + edge[None, :]
    above = tl.sum(tl.load(sums + at, mask=mask[:, None], other=0.0), axis=0)
    places = _places(high, low, EDGES)
    high_edge = tl.min(tl.where(above < limit * (1 - _HINT_MARGIN), places, high), axis=0)
    low_edge = tl.max(tl.where(above > limit * (1 + _HINT_MARGIN), places, low), axis=0)
    return high_edge, low_edge


@triton.jit
def _places(high, low, EDGES: tl.constexpr):
    return high - (high - low) * (tl.arange(0, EDGES) + 1).to(tl.float32) / EDGES


@triton.jit
def _lowest_place(peak, low, scale):
    return tl.maximum((low - peak) * scale - 0.01, -44.0)


@triton.jit
def sums(
    logits, words, row_peaks, row_lows, part_totals, part_floors, coarse, out, vocab, num_ids,
    part_width, num_parts, PARTS: tl.constexpr, EDGES: tl.constexpr, FINE_EDGES: tl.constexpr,
    BLOCK: tl.constexpr, FINE: tl.constexpr, WORDS: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """Exact mass of a part, and its mass above edges; FINE: above those between two coarse ones."""
    row, part = tl.program_id(0), tl.program_id(1)
    words += row * WORDS
    top_p = _wide(words, _TOP_P).to(tl.float64, bitcast=True)
    peak = tl.load(row_peaks + row)
    wanted = ((tl.load(words + _FLAGS) & _DRAWS) != 0) & (tl.load(words + _TOP_K) == 0)
    wanted = wanted & (peak > _NEGATIVE)
    if FINE:
        wanted = wanted & (top_p < 1)
    if wanted:
        base = _source(logits, words, row, vocab, ALIGNED)
        scale = _real(words, _SCALE)
        floor = _real(words, _FLOOR)
        high = tl.full([], 0.5, tl.float32)
        low = _lowest_place(peak, tl.load(row_lows + row), scale)
        if FINE:
            high, low = _edges(coarse, part_totals, row, num_parts, top_p, high, low, PARTS, EDGES)
            edges = _exp2_mass(_places(high, low, FINE_EDGES))
        else:
            edges = _exp2_mass(_places(high, low, EDGES))
        begin = part * part_width
        end = tl.minimum(begin + part_width, num_ids)
        total_high, total_low = tl.zeros([BLOCK], tl.int32), tl.zeros([BLOCK], tl.int32)
        lifted_high, lifted_low = tl.zeros([BLOCK], tl.int32), tl.zeros([BLOCK], tl.int32)
        NUM_EDGES: tl.constexpr = FINE_EDGES if FINE else EDGES
        above = tl.zeros([NUM_EDGES, BLOCK], tl.float32)
        for start in tl.range(begin, end, BLOCK, loop_unroll_factor=2):
            columns = start + tl.arange(0, BLOCK)
            masses = _mass(_load(base, columns, columns < end), peak, scale)
            if not FINE:
                mass_high, mass_low = _halves(masses)
                total_high += mass_high
                total_low += mass_low
                lifted_high += tl.where(masses >= floor, mass_high, 0)
                lifted_low += tl.where(masses >= floor, mass_low, 0)
            if top_p < 1:
                above += tl.where(masses[None, :] >= edges[:, None], masses[None, :], 0.0)
        at = row * num_parts + part
        if not FINE:
            tl.store(part_totals + at, _joined(total_high, total_low))
            tl.store(part_floors + at, _joined(lifted_high, lifted_low))
        if top_p < 1:
            tl.store(out + at * NUM_EDGES + tl.arange(0, NUM_EDGES), tl.sum(above, axis=1))


@triton.jit
def _fine_edges(
    words, row, peak, low_logit, coarse, fine, part_totals, num_parts, top_p,
    PARTS: tl.constexpr, EDGES: tl.constexpr, FINE_EDGES: tl.constexpr,
):  # fmt: skip
    """Masses between which the nucleus ends: the list is [low, high)."""
    high = tl.full([], 0.5, tl.float32)
    low = _lowest_place(peak, low_logit, _real(words, _SCALE))
    high, low = _edges(coarse, part_totals, row, num_parts, top_p, high, low, PARTS, EDGES)
    high, low = _edges(fine, part_totals, row, num_parts, top_p, high, low, PARTS, FINE_EDGES)
    return _exp2_mass(high), tl.maximum(_exp2_mass(low), 1.0)


@triton.jit
def collect(
    logits, words, row_peaks, row_lows, row_bounds, row_counts, maxima, part_totals, part_heavies,
    coarse, fine, list_ids, list_values, vocab, num_ids, part_width, num_parts, PARTS: tl.constexpr,
    EDGES: tl.constexpr, FINE_EDGES: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr,
    LIST: tl.constexpr, WORDS: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """List a row's tokens above its bound, or around the end of its nucleus, in any order.

    Counts on beyond the end of the list. Stores the exact mass of what is above the high edge.
    """
    row, part = tl.program_id(0), tl.program_id(1)
    words += row * WORDS
    top_p = _wide(words, _TOP_P).to(tl.float64, bitcast=True)
    top_k = tl.load(words + _TOP_K)
    peak = tl.load(row_peaks + row)
    bound = tl.load(row_bounds + row)
    wanted = ((tl.load(words + _FLAGS) & _DRAWS) != 0) & (peak > _NEGATIVE)
    wanted = wanted & ((top_k > 0) | (top_p < 1))
    hit = tl.full([BLOCK], 1, tl.int1)
    if wanted & (top_k > 0):
        # Only groups whose best reaches the bound are read at all.
        lanes = (row * num_parts + part) * LANES + tl.arange(0, BLOCK) % LANES
        hit = tl.load(maxima + lanes) >= bound
        wanted = tl.max(hit.to(tl.int32), axis=0) != 0
    if wanted:
        base = _source(logits, words, row, vocab, ALIGNED)
        scale = _real(words, _SCALE)
        high, low = tl.full([], 0.0, tl.float32), tl.full([], 0.0, tl.float32)
        if top_k == 0:
            high, low = _fine_edges(
                words, row, peak, tl.load(row_lows + row), coarse, fine, part_totals, num_parts,
                top_p, PARTS, EDGES, FINE_EDGES,
            )  # fmt: skip
        begin = part * part_width
        end = tl.minimum(begin + part_width, num_ids)
        heavy_high, heavy_low = tl.zeros([BLOCK], tl.int32), tl.zeros([BLOCK], tl.int32)
        for start in range(begin, end, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            values = _load(base, columns, (columns < end) & hit)
            if top_k == 0:
                masses = _mass(values, peak, scale)
                mass_high, mass_low = _halves(masses)
                heavy_high += tl.where(masses >= high, mass_high, 0)
                heavy_low += tl.where(masses >= high, mass_low, 0)
                listed = (masses >= low) & (masses < high)
            else:
                listed = (values >= bound) & (columns < end) & hit
            count = tl.sum(listed.to(tl.int32), axis=0)
            if count > 0:
                first = tl.atomic_add(row_counts + row, count)
                place = first + tl.cumsum(listed.to(tl.int32), axis=0) - 1
                fits = listed & (place < LIST)
                entry = row.to(tl.int64) * LIST + place
                tl.store(list_ids + entry, columns, mask=fits)
                tl.store(list_values + entry, values, mask=fits)
        if top_k == 0:
            at = row * num_parts + part
            tl.store(part_heavies + at, _joined(heavy_high, heavy_low))


@triton.jit
def _inside(keys, masses, ids, last_key, last_tie, last_mass, last_even, floor, last_id):
    """Which tokens are kept by top_k (a key, and an id for its ties), top_p (likewise), min_p."""
    top = (keys > last_key) | ((keys == last_key) & (ids <= last_tie))
    nucleus = (masses > last_mass) | ((masses == last_mass) & (ids <= last_even))
    return top & nucleus & (masses >= floor) & (ids <= last_id)


@triton.jit
def _tally(
    keys, masses, ids, base, num_ids, peak, scale, last_key, last_tie, last_mass, last_even, floor,
    last_id, LISTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Mass and number of kept tokens up to an id: of the list, or of the whole row."""
    if LISTED:
        kept = _inside(keys, masses, ids, last_key, last_tie, last_mass, last_even, floor, last_id)
        mass = tl.sum(tl.where(kept, masses, 0.0).to(tl.int64), axis=0)
        return mass, tl.sum(kept.to(tl.int32), axis=0)
    else:
        sum_mass = tl.zeros([BLOCK], tl.int64)
        sum_kept = tl.zeros([BLOCK], tl.int32)
        for start in range(0, num_ids, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            values = _load(base, columns, columns < num_ids)
            mass = _mass(values, peak, scale)
            kept = _inside(
                _key(values), mass, columns, last_key, last_tie, last_mass, last_even, floor,
                tl.minimum(last_id, num_ids - 1),
            )  # fmt: skip
            sum_mass += tl.where(kept, mass, 0.0).to(tl.int64)
            sum_kept += kept.to(tl.int32)
        return tl.sum(sum_mass, axis=0), tl.sum(sum_kept, axis=0)


@triton.jit
def _cut_top_k(
    keys, masses, ids, base, num_ids, peak, scale, top_k, LISTED: tl.constexpr, BLOCK: tl.constexpr
):
    """A key that only kept tokens reach, and the last id kept of those equal to it."""
    low = tl.full([], _KEY_NEGATIVE, tl.int64)
    if LISTED:
        low = tl.min(tl.where(ids < num_ids, keys, _MOST), axis=0).to(tl.int64)
    tie = tl.full([], _MOST, tl.int64)
    beyond = _key(peak).to(tl.int64) + 1
    count = top_k + 1
    while (beyond - low > 1) & (count != top_k):
        middle = (low + beyond) >> 1
        _, count = _tally(keys, masses, ids, base, num_ids, peak, scale, middle.to(tl.int32),
                          _MOST, -1.0, _MOST, -1.0, _MOST, LISTED, BLOCK)  # fmt: skip
        low = tl.where(count >= top_k, middle, low)
        beyond = tl.where(count >= top_k, beyond, middle)
    _, count = _tally(keys, masses, ids, base, num_ids, peak, scale, low.to(tl.int32), _MOST,
                      -1.0, _MOST, -1.0, _MOST, LISTED, BLOCK)  # fmt: skip
    if count > top_k:
        before = tl.full([], -1, tl.int64)
        tie = tl.full([], 0, tl.int64) + num_ids - 1
        while tie - before > 1:
            middle = (before + tie) >> 1
            _, count = _tally(keys, masses, ids, base, num_ids, peak, scale, low.to(tl.int32),
                              middle.to(tl.int32), -1.0, _MOST, -1.0, _MOST, LISTED,
                              BLOCK)  # fmt: skip
            tie = tl.where(count >= top_k, middle, tie)
            before = tl.where(count >= top_k, before, middle)
    return low.to(tl.int32), tie.to(tl.int32)


@triton.jit
def _cut_top_p(
    keys, masses, ids, base, num_ids, peak, scale, key, tie, limit, num_kept,
    LISTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A mass that only kept tokens reach, and the last id kept of those equal to it.

    `limit` mass is to be reached, and `num_kept` tokens can be.
    """
    low = tl.full([], 0, tl.int64)
    if LISTED:
        # No lower: there are tokens that are neither listed nor kept.
        least = tl.min(tl.where(ids < num_ids, masses, _LARGEST), axis=0)
        low = least.to(tl.int32, bitcast=True).to(tl.int64)
    even = tl.full([], _MOST, tl.int64)
    beyond = tl.full([], (42 + 127) << 23, tl.int64) + 1
    num_beyond = tl.full([], 0, tl.int32)
    # One token between the two is the one that reaches the limit.
    while (beyond - low > 1) & (num_kept - num_beyond > 1):
        middle = (low + beyond) >> 1
        lightest = middle.to(tl.int32).to(tl.float32, bitcast=True)
        mass, count = _tally(keys, masses, ids, base, num_ids, peak, scale, key, tie, lightest,
                             _MOST, -1.0, _MOST, LISTED, BLOCK)  # fmt: skip
        enough = mass >= limit
        low = tl.where(enough, middle, low)
        beyond = tl.where(enough, beyond, middle)
        num_kept = tl.where(enough, count, num_kept)
        num_beyond = tl.where(enough, num_beyond, count)
    lightest = low.to(tl.int32).to(tl.float32, bitcast=True)
    mass, _ = _tally(keys, masses, ids, base, num_ids, peak, scale, key, tie, lightest, _MOST,
                     -1.0, _MOST, LISTED, BLOCK)  # fmt: skip
    if (beyond - low == 1) & (mass - lightest.to(tl.int64) >= limit):
        before = tl.full([], -1, tl.int64)
        even = tl.full([], 0, tl.int64) + num_ids - 1
        while even - before > 1:
            middle = (before + even) >> 1
            mass, _ = _tally(keys, masses, ids, base, num_ids, peak, scale, key, tie, lightest,
                             middle.to(tl.int32), -1.0, _MOST, LISTED, BLOCK)  # fmt: skip
            even = tl.where(mass >= limit, middle, even)
            before = tl.where(mass >= limit, before, middle)
    return lightest, even.to(tl.int32)


@triton.jit
def _settle(
    list_ids, list_values, num_listed, base, num_ids, peak, scale, floor, top_k, top_p, total,
    heavy, heavies, bits, part_width, num_parts, LISTED: tl.constexpr, PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """All cuts of a row, the part that the draw falls into and what is left of it there.

    `heavies` is the kept mass of each part that is not in the list, `heavy` the mass above it;
    `total` is negative where the list holds everything that top_k keeps.
    """
    if LISTED:
        place = tl.arange(0, BLOCK)
        mask = place < num_listed
        ids = tl.load(list_ids + place, mask=mask, other=_MOST)
        values = tl.load(list_values + place, mask=mask, other=_NEGATIVE)
        keys = tl.where(mask, _key(values), _KEY_LOWEST)
        masses = tl.where(mask, _mass(values, peak, scale), 0.0)
    else:
        keys, masses, ids = 0, 0.0, 0
    key, tie = tl.full([], _KEY_LOWEST + 1, tl.int32), tl.full([], _MOST, tl.int32)
    lightest, even = tl.full([], -1.0, tl.float32), tl.full([], _MOST, tl.int32)
    if top_k > 0:
        key, tie = _cut_top_k(keys, masses, ids, base, num_ids, peak, scale, top_k, LISTED, BLOCK)
    good = tl.full([], 1, tl.int32)
    if top_p < 1:
        mass, count = _tally(keys, masses, ids, base, num_ids, peak, scale, key, tie, -1.0, _MOST,
                             -1.0, _MOST, LISTED, BLOCK)  # fmt: skip
        whole = tl.where(total < 0, mass, total)
        limit = tl.ceil(top_p * whole.to(tl.float64)).to(tl.int64)
        limit = tl.minimum(tl.maximum(limit, 1), whole) - heavy
        good = ((limit > 0) & (mass >= limit)).to(tl.int32)
        if good != 0:
            lightest, even = _cut_top_p(
                keys,
                masses,
                ids,
                base,
                num_ids,
                peak,
                scale,
                key,
                tie,
                limit,
                count,
                LISTED,
                BLOCK,
            )
    kept, _ = _tally(keys, masses, ids, base, num_ids, peak, scale, key, tie, lightest, even,
                     floor, _MOST, LISTED, BLOCK)  # fmt: skip
    kept += tl.sum(heavies, axis=0)
    target = tl.umulhi(kept.to(tl.uint64), bits).to(tl.int64)
    parts = tl.arange(0, PARTS)
    part, beyond = tl.full([], -1, tl.int32), num_parts - 1
    before = tl.full([], 0, tl.int64)
    while beyond - part > 1:
        middle = (part + beyond) >> 1
        mass, _ = _tally(keys, masses, ids, base, num_ids, peak, scale, key, tie, lightest, even,
                         floor, (middle + 1) * part_width - 1, LISTED, BLOCK)  # fmt: skip
        mass += tl.sum(tl.where(parts <= middle, heavies, 0), axis=0)
        reached = mass > target
        before = tl.where(reached, before, mass)
        part = tl.where(reached, part, middle)
        beyond = tl.where(reached, middle, beyond)
    return good, key, tie, lightest, even, beyond, target - before


@triton.jit
def _random(words):
    """The row's 64 bits: Philox4x32-10, keyed by the seed, of (position, sample, purpose 0)."""
    c0 = tl.load(words + _POSITION).to(tl.uint32, bitcast=True).to(tl.uint64)
    c1 = tl.full([], 0, tl.uint64)
    c2 = tl.load(words + _SAMPLE).to(tl.uint32, bitcast=True).to(tl.uint64)
    c3 = tl.full([], 0, tl.uint64)
    low = tl.full([], 0xFFFFFFFF, tl.uint64)
    seed = _wide(words, _SEED)
    k0 = seed & low
    k1 = seed >> 32
    for _ in tl.static_range(10):
        p0 = c0 * tl.full([], 0xD2511F53, tl.uint64)
        p1 = c2 * tl.full([], 0xCD9E8D57, tl.uint64)
        c0 = (p1 >> 32) ^ c1 ^ k0
        c1 = p1 & low
        c2 = (p0 >> 32) ^ c3 ^ k1
        c3 = p0 & low
        k0 = (k0 + tl.full([], 0x9E3779B9, tl.uint64)) & low
        k1 = (k1 + tl.full([], 0xBB67AE85, tl.uint64)) & low
    return c0 | (c1 << 32)


@triton.jit
def draw(
    logits, words, row_peaks, row_ids, row_lows, row_counts, part_totals, part_floors,
    part_heavies, coarse, fine, list_ids, list_values, chosen, next_ids, vocab, num_ids,
    part_width, num_parts, PARTS: tl.constexpr, EDGES: tl.constexpr, FINE_EDGES: tl.constexpr,
    BLOCK: tl.constexpr, SHORT: tl.constexpr, LIST: tl.constexpr, WORDS: tl.constexpr,
    ALIGNED: tl.constexpr,
):  # fmt: skip
    """The choice of each row; grid (rows,)."""
    row = tl.program_id(0)
    words += row * WORDS
    peak = tl.load(row_peaks + row)
    token = tl.where(peak > _NEGATIVE, tl.load(row_ids + row), tl.load(words + _FALLBACK))
    if ((tl.load(words + _FLAGS) & _DRAWS) != 0) & (peak > _NEGATIVE):
        base = _source(logits, words, row, vocab, ALIGNED)
        scale, floor = _real(words, _SCALE), _real(words, _FLOOR)
        top_k = tl.load(words + _TOP_K)
        top_p = _wide(words, _TOP_P).to(tl.float64, bitcast=True)
        bits = _random(words)
        parts = tl.arange(0, PARTS)
        at, mask = row * num_parts + parts, parts < num_parts
        heavies = tl.zeros([PARTS], tl.int64)
        total, heavy = tl.full([], -1, tl.int64), tl.full([], 0, tl.int64)
        num_listed = tl.load(row_counts + row)
        if top_k == 0:
            heavies = tl.load(part_floors + at, mask=mask, other=0)
            total = tl.sum(tl.load(part_totals + at, mask=mask, other=0), axis=0)
            if top_p < 1:
                high, _ = _fine_edges(
                    words, row, peak, tl.load(row_lows + row), coarse, fine, part_totals,
                    num_parts, top_p, PARTS, EDGES, FINE_EDGES,
                )  # fmt: skip
                above = tl.load(part_heavies + at, mask=mask, other=0)
                heavy = tl.sum(above, axis=0)
                heavies = tl.where(floor >= high, heavies, above)
        list_ids += row.to(tl.int64) * LIST
        list_values += row.to(tl.int64) * LIST
        good = tl.full([], 0, tl.int32)
        key, tie = tl.full([], 0, tl.int32), tl.full([], 0, tl.int32)
        lightest, even = tl.full([], 0.0, tl.float32), tl.full([], 0, tl.int32)
        part, left = tl.full([], 0, tl.int32), tl.full([], 0, tl.int64)
        if num_listed <= SHORT:
            good, key, tie, lightest, even, part, left = _settle(
                list_ids, list_values, num_listed, base, num_ids, peak, scale, floor, top_k, top_p,
                total, heavy, heavies, bits, part_width, num_parts, True, PARTS, SHORT,
            )  # fmt: skip
        elif num_listed <= LIST:
            good, key, tie, lightest, even, part, left = _settle(
                list_ids, list_values, num_listed, base, num_ids, peak, scale, floor, top_k, top_p,
                total, heavy, heavies, bits, part_width, num_parts, True, PARTS, LIST,
            )  # fmt: skip
        if good == 0:
            good, key, tie, lightest, even, part, left = _settle(
                list_ids, list_values, num_listed, base, num_ids, peak, scale, floor, top_k, top_p,
                tl.full([], -1, tl.int64), tl.full([], 0, tl.int64), tl.zeros([PARTS], tl.int64),
                bits, part_width, num_parts, False, PARTS, BLOCK,
            )  # fmt: skip
        begin = part * part_width
        end = tl.minimum(begin + part_width, num_ids)
        open_ = tl.full([], 1, tl.int32)
        for start in range(begin, end, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            values = _load(base, columns, columns < end)
            masses = _mass(values, peak, scale)
            kept = _inside(_key(values), masses, columns, key, tie, lightest, even, floor, end - 1)
            whole = tl.where(kept, masses, 0.0).to(tl.int64)
            mass = tl.sum(whole, axis=0)
            if (open_ != 0) & (mass > left):
                passed = tl.cumsum(whole, axis=0) <= left
                token = start + tl.sum(passed.to(tl.int32), axis=0)
                open_ = tl.full([], 0, tl.int32)
            left -= mass
    _choose(words, row, token, tl.load(row_ids + row) < 0, chosen, next_ids)
