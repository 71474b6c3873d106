# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""Best logits of each row, and bounds that the tokens which matter reach.

Rows are described by words (`choice_values`). A row is cut into parts, a program each, and goes
through at most six launches:

    peaks    best, lowest finite and group maxima of a part
    bounds   best of the row; a bound that at least top_k logits reach
    sums     mass of a part; approximate mass above edges, first coarse ones, then fine ones
    collect  list of the tokens that matter: those above the bound, or those between two edges
    draw     the exact cuts, from the list or, where it is too long, the whole row, and the draw

`best` stands for all of them where no row draws. The first two are here, `choice_sums` has the next
two, `choice_draw` the last. Tokens are exactly those that `pegainfer_core.sampling` chooses on the
host, so nothing may be contracted to fused multiply-adds.
"""

import triton
import triton.language as tl

from pegainfer_core.kernels.src.choice_values import (
    FALLBACK,
    HISTORY,
    INFINITE,
    LARGEST,
    MOST,
    NEGATIVE,
    SLOT,
    TOP_K,
    load_logits,
    order_key,
    row_logits,
    wide_word,
)

_KEY_NEGATIVE = tl.constexpr(-2139095041)


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
    base = row_logits(logits, words, row, vocab, ALIGNED)
    begin = part * part_width
    end = tl.minimum(begin + part_width, num_ids)
    best = tl.full([BLOCK], NEGATIVE, tl.float32)
    low = tl.full([BLOCK], LARGEST, tl.float32)
    index = tl.full([BLOCK], 0, tl.int32) + begin
    broken = tl.zeros([BLOCK], tl.int32)
    for start in range(begin, end, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        given = tl.load(base + columns, mask=columns < end, other=NEGATIVE)
        broken |= (given != given).to(tl.int32)
        values = tl.minimum(tl.where(given != given, NEGATIVE, given), LARGEST)
        better = values > best
        best = tl.where(better, values, best)
        index = tl.where(better, columns, index)
        low = tl.minimum(low, tl.where(values > NEGATIVE, values, LARGEST))
    top = tl.max(best, axis=0)
    at = row * tl.num_programs(1) + part
    tl.store(part_peaks + at, tl.where(tl.max(broken, axis=0) > 0, INFINITE, top))
    tl.store(part_ids + at, tl.min(tl.where(best == top, index, MOST), axis=0))
    tl.store(part_lows + at, tl.min(low, axis=0))
    if tl.load(words + TOP_K) > 0:
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
    token = tl.where(peak > NEGATIVE, index, tl.load(words + FALLBACK))
    hand_over(words, row, token, peak == INFINITE, chosen, next_ids)


@triton.jit
def _best_part(part_peaks, part_ids, row, num_parts, PARTS: tl.constexpr):
    part = tl.arange(0, PARTS)
    tops = tl.load(part_peaks + row * num_parts + part, mask=part < num_parts, other=NEGATIVE)
    ids = tl.load(part_ids + row * num_parts + part, mask=part < num_parts, other=MOST)
    peak = tl.max(tops, axis=0)
    return peak, tl.min(tl.where(tops == peak, ids, MOST), axis=0)


@triton.jit
def hand_over(words, row, token, broken, chosen, next_ids):
    """Hand a token to the host and to the next step, and count it for penalties.

    Where a logit was NaN the host gets -1; the next step, which may be under way, any token.
    """
    tl.store(chosen + row, tl.where(broken, -1, token))
    slot = tl.load(words + SLOT)
    if slot > 0:
        tl.store(next_ids + slot - 1, token)
    history = wide_word(words, HISTORY).to(tl.int64)
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
    lows = tl.load(part_lows + row * num_parts + part, mask=part < num_parts, other=LARGEST)
    # Nothing is to be drawn from a row that holds NaN.
    broken = peak == INFINITE
    peak = tl.where(broken, NEGATIVE, peak)
    tl.store(row_peaks + row, peak)
    tl.store(row_ids + row, tl.where(broken, -1, index))
    tl.store(row_lows + row, tl.min(lows, axis=0))
    num_listed = tl.full([], 0, tl.int32)
    left = tl.full([], NEGATIVE, tl.float32)
    top_k = tl.load(words + TOP_K)
    bound = tl.full([], _KEY_NEGATIVE, tl.int64)
    if (top_k > 0) & (top_k <= num_parts * LANES) & (peak > NEGATIVE):
        group = tl.arange(0, PARTS * LANES)
        mask = group < num_parts * LANES
        tops = tl.load(maxima + row * num_parts * LANES + group, mask=mask, other=NEGATIVE)
        keys = order_key(tops)
        beyond = order_key(peak).to(tl.int64) + 1
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
            base = row_logits(logits, words, row, vocab, ALIGNED)
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
        values = load_logits(base, columns, mask)
        listed = mask & (values >= bound)
        entry = num_listed + tl.cumsum(listed.to(tl.int32), axis=0) - 1
        fits = listed & (entry < LIST)
        tl.store(list_ids + entry, columns, mask=fits)
        tl.store(list_values + entry, values, mask=fits)
        num_listed += tl.sum(listed.to(tl.int32), axis=0)
    return num_listed
