# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""Masses of a row's parts and above edges, and the list of the tokens between two of them.

Edges are hints: `draw` checks with exact sums that the cut lies between them. See `choice_peaks`.
"""

import triton
import triton.language as tl

from pegainfer_core.kernels.src.choice_values import (
    DRAWS,
    FLAGS,
    FLOOR,
    NEGATIVE,
    SCALE,
    TOP_K,
    TOP_P,
    exp2_mass,
    joined_mass,
    load_logits,
    mass_halves,
    mass_of,
    real_word,
    row_logits,
    wide_word,
)

_HINT_MARGIN = tl.constexpr(1e-4)


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
    top_p = wide_word(words, TOP_P).to(tl.float64, bitcast=True)
    peak = tl.load(row_peaks + row)
    wanted = ((tl.load(words + FLAGS) & DRAWS) != 0) & (tl.load(words + TOP_K) == 0)
    wanted = wanted & (peak > NEGATIVE)
    if FINE:
        wanted = wanted & (top_p < 1)
    if wanted:
        base = row_logits(logits, words, row, vocab, ALIGNED)
        scale = real_word(words, SCALE)
        floor = real_word(words, FLOOR)
        high = tl.full([], 0.5, tl.float32)
        low = _lowest_place(peak, tl.load(row_lows + row), scale)
        if FINE:
            high, low = _edges(coarse, part_totals, row, num_parts, top_p, high, low, PARTS, EDGES)
            edges = exp2_mass(_places(high, low, FINE_EDGES))
        else:
            edges = exp2_mass(_places(high, low, EDGES))
        begin = part * part_width
        end = tl.minimum(begin + part_width, num_ids)
        total_high, total_low = tl.zeros([BLOCK], tl.int32), tl.zeros([BLOCK], tl.int32)
        lifted_high, lifted_low = tl.zeros([BLOCK], tl.int32), tl.zeros([BLOCK], tl.int32)
        NUM_EDGES: tl.constexpr = FINE_EDGES if FINE else EDGES
        above = tl.zeros([NUM_EDGES, BLOCK], tl.float32)
        for start in tl.range(begin, end, BLOCK, loop_unroll_factor=2):
            columns = start + tl.arange(0, BLOCK)
            masses = mass_of(load_logits(base, columns, columns < end), peak, scale)
            if not FINE:
                mass_high, mass_low = mass_halves(masses)
                total_high += mass_high
                total_low += mass_low
                lifted_high += tl.where(masses >= floor, mass_high, 0)
                lifted_low += tl.where(masses >= floor, mass_low, 0)
            if top_p < 1:
                above += tl.where(masses[None, :] >= edges[:, None], masses[None, :], 0.0)
        at = row * num_parts + part
        if not FINE:
            tl.store(part_totals + at, joined_mass(total_high, total_low))
            tl.store(part_floors + at, joined_mass(lifted_high, lifted_low))
        if top_p < 1:
            tl.store(out + at * NUM_EDGES + tl.arange(0, NUM_EDGES), tl.sum(above, axis=1))


@triton.jit
def fine_edges(
    words, row, peak, low_logit, coarse, fine, part_totals, num_parts, top_p,
    PARTS: tl.constexpr, EDGES: tl.constexpr, FINE_EDGES: tl.constexpr,
):  # fmt: skip
    """Masses between which the nucleus ends: the list is [low, high)."""
    high = tl.full([], 0.5, tl.float32)
    low = _lowest_place(peak, low_logit, real_word(words, SCALE))
    high, low = _edges(coarse, part_totals, row, num_parts, top_p, high, low, PARTS, EDGES)
    high, low = _edges(fine, part_totals, row, num_parts, top_p, high, low, PARTS, FINE_EDGES)
    return exp2_mass(high), tl.maximum(exp2_mass(low), 1.0)


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
    top_p = wide_word(words, TOP_P).to(tl.float64, bitcast=True)
    top_k = tl.load(words + TOP_K)
    peak = tl.load(row_peaks + row)
    bound = tl.load(row_bounds + row)
    wanted = ((tl.load(words + FLAGS) & DRAWS) != 0) & (peak > NEGATIVE)
    wanted = wanted & ((top_k > 0) | (top_p < 1))
    hit = tl.full([BLOCK], 1, tl.int1)
    if wanted & (top_k > 0):
        # Only groups whose best reaches the bound are read at all.
        lanes = (row * num_parts + part) * LANES + tl.arange(0, BLOCK) % LANES
        hit = tl.load(maxima + lanes) >= bound
        wanted = tl.max(hit.to(tl.int32), axis=0) != 0
    if wanted:
        base = row_logits(logits, words, row, vocab, ALIGNED)
        scale = real_word(words, SCALE)
        high, low = tl.full([], 0.0, tl.float32), tl.full([], 0.0, tl.float32)
        if top_k == 0:
            high, low = fine_edges(
                words, row, peak, tl.load(row_lows + row), coarse, fine, part_totals, num_parts,
                top_p, PARTS, EDGES, FINE_EDGES,
            )  # fmt: skip
        begin = part * part_width
        end = tl.minimum(begin + part_width, num_ids)
        heavy_high, heavy_low = tl.zeros([BLOCK], tl.int32), tl.zeros([BLOCK], tl.int32)
        for start in range(begin, end, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            values = load_logits(base, columns, (columns < end) & hit)
            if top_k == 0:
                masses = mass_of(values, peak, scale)
                mass_high, mass_low = mass_halves(masses)
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
            tl.store(part_heavies + at, joined_mass(heavy_high, heavy_low))
