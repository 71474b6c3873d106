# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""The draw of a token inside its row's exact cuts. See `choice_peaks`."""

import triton
import triton.language as tl

from pegainfer_core.kernels.src.choice_cuts import inside_cuts, settle
from pegainfer_core.kernels.src.choice_peaks import hand_over
from pegainfer_core.kernels.src.choice_sums import fine_edges
from pegainfer_core.kernels.src.choice_values import (
    DRAWS,
    FALLBACK,
    FLAGS,
    FLOOR,
    NEGATIVE,
    POSITION,
    SAMPLE,
    SCALE,
    SEED,
    TOP_K,
    TOP_P,
    load_logits,
    mass_of,
    order_key,
    real_word,
    row_logits,
    wide_word,
)


@triton.jit
def _random(words):
    """The row's 64 bits: Philox4x32-10, keyed by the seed, of (position, sample, purpose 0)."""
    c0 = tl.load(words + POSITION).to(tl.uint32, bitcast=True).to(tl.uint64)
    c1 = tl.full([], 0, tl.uint64)
    c2 = tl.load(words + SAMPLE).to(tl.uint32, bitcast=True).to(tl.uint64)
    c3 = tl.full([], 0, tl.uint64)
    low = tl.full([], 0xFFFFFFFF, tl.uint64)
    seed = wide_word(words, SEED)
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
    token = tl.where(peak > NEGATIVE, tl.load(row_ids + row), tl.load(words + FALLBACK))
    if ((tl.load(words + FLAGS) & DRAWS) != 0) & (peak > NEGATIVE):
        base = row_logits(logits, words, row, vocab, ALIGNED)
        scale, floor = real_word(words, SCALE), real_word(words, FLOOR)
        top_k = tl.load(words + TOP_K)
        top_p = wide_word(words, TOP_P).to(tl.float64, bitcast=True)
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
                high, _ = fine_edges(
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
            good, key, tie, lightest, even, part, left = settle(
                list_ids, list_values, num_listed, base, num_ids, peak, scale, floor, top_k, top_p,
                total, heavy, heavies, bits, part_width, num_parts, True, PARTS, SHORT,
            )  # fmt: skip
        elif num_listed <= LIST:
            good, key, tie, lightest, even, part, left = settle(
                list_ids, list_values, num_listed, base, num_ids, peak, scale, floor, top_k, top_p,
                total, heavy, heavies, bits, part_width, num_parts, True, PARTS, LIST,
            )  # fmt: skip
        if good == 0:
            good, key, tie, lightest, even, part, left = settle(
                list_ids, list_values, num_listed, base, num_ids, peak, scale, floor, top_k, top_p,
                tl.full([], -1, tl.int64), tl.full([], 0, tl.int64), tl.zeros([PARTS], tl.int64),
                bits, part_width, num_parts, False, PARTS, BLOCK,
            )  # fmt: skip
        begin = part * part_width
        end = tl.minimum(begin + part_width, num_ids)
        open_ = tl.full([], 1, tl.int32)
        for start in range(begin, end, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            values = load_logits(base, columns, columns < end)
            masses = mass_of(values, peak, scale)
            kept = inside_cuts(
                order_key(values), masses, columns, key, tie, lightest, even, floor, end - 1
            )
            whole = tl.where(kept, masses, 0.0).to(tl.int64)
            mass = tl.sum(whole, axis=0)
            if (open_ != 0) & (mass > left):
                passed = tl.cumsum(whole, axis=0) <= left
                token = start + tl.sum(passed.to(tl.int32), axis=0)
                open_ = tl.full([], 0, tl.int32)
            left -= mass
    hand_over(words, row, token, tl.load(row_ids + row) < 0, chosen, next_ids)
