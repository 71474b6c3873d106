# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""The exact cuts of a row's distribution by top_k and top_p. See `choice_peaks`."""

import triton
import triton.language as tl

from pegainfer_core.kernels.src.choice_values import (
    LARGEST,
    MOST,
    NEGATIVE,
    load_logits,
    mass_of,
    order_key,
)

_KEY_NEGATIVE = tl.constexpr(-2139095041)
_KEY_LOWEST = tl.constexpr(-(2**31))


@triton.jit
def inside_cuts(keys, masses, ids, last_key, last_tie, last_mass, last_even, floor, last_id):
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
        kept = inside_cuts(
            keys, masses, ids, last_key, last_tie, last_mass, last_even, floor, last_id
        )
        mass = tl.sum(tl.where(kept, masses, 0.0).to(tl.int64), axis=0)
        return mass, tl.sum(kept.to(tl.int32), axis=0)
    else:
        sum_mass = tl.zeros([BLOCK], tl.int64)
        sum_kept = tl.zeros([BLOCK], tl.int32)
        for start in range(0, num_ids, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            values = load_logits(base, columns, columns < num_ids)
            mass = mass_of(values, peak, scale)
            kept = inside_cuts(
                order_key(values), mass, columns, last_key, last_tie, last_mass, last_even, floor,
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
        low = tl.min(tl.where(ids < num_ids, keys, MOST), axis=0).to(tl.int64)
    tie = tl.full([], MOST, tl.int64)
    beyond = order_key(peak).to(tl.int64) + 1
    count = top_k + 1
    while (beyond - low > 1) & (count != top_k):
        middle = (low + beyond) >> 1
        _, count = _tally(keys, masses, ids, base, num_ids, peak, scale, middle.to(tl.int32),
                          MOST, -1.0, MOST, -1.0, MOST, LISTED, BLOCK)  # fmt: skip
        low = tl.where(count >= top_k, middle, low)
        beyond = tl.where(count >= top_k, beyond, middle)
    _, count = _tally(keys, masses, ids, base, num_ids, peak, scale, low.to(tl.int32), MOST,
                      -1.0, MOST, -1.0, MOST, LISTED, BLOCK)  # fmt: skip
    if count > top_k:
        before = tl.full([], -1, tl.int64)
        tie = tl.full([], 0, tl.int64) + num_ids - 1
        while tie - before > 1:
            middle = (before + tie) >> 1
            _, count = _tally(keys, masses, ids, base, num_ids, peak, scale, low.to(tl.int32),
                              middle.to(tl.int32), -1.0, MOST, -1.0, MOST, LISTED,
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
        least = tl.min(tl.where(ids < num_ids, masses, LARGEST), axis=0)
        low = least.to(tl.int32, bitcast=True).to(tl.int64)
    even = tl.full([], MOST, tl.int64)
    beyond = tl.full([], (42 + 127) << 23, tl.int64) + 1
    num_beyond = tl.full([], 0, tl.int32)
    # One token between the two is the one that reaches the limit.
    while (beyond - low > 1) & (num_kept - num_beyond > 1):
        middle = (low + beyond) >> 1
        lightest = middle.to(tl.int32).to(tl.float32, bitcast=True)
        mass, count = _tally(keys, masses, ids, base, num_ids, peak, scale, key, tie, lightest,
                             MOST, -1.0, MOST, LISTED, BLOCK)  # fmt: skip
        enough = mass >= limit
        low = tl.where(enough, middle, low)
        beyond = tl.where(enough, beyond, middle)
        num_kept = tl.where(enough, count, num_kept)
        num_beyond = tl.where(enough, num_beyond, count)
    lightest = low.to(tl.int32).to(tl.float32, bitcast=True)
    mass, _ = _tally(keys, masses, ids, base, num_ids, peak, scale, key, tie, lightest, MOST,
                     -1.0, MOST, LISTED, BLOCK)  # fmt: skip
    if (beyond - low == 1) & (mass - lightest.to(tl.int64) >= limit):
        before = tl.full([], -1, tl.int64)
        even = tl.full([], 0, tl.int64) + num_ids - 1
        while even - before > 1:
            middle = (before + even) >> 1
            mass, _ = _tally(keys, masses, ids, base, num_ids, peak, scale, key, tie, lightest,
                             middle.to(tl.int32), -1.0, MOST, LISTED, BLOCK)  # fmt: skip
            even = tl.where(mass >= limit, middle, even)
            before = tl.where(mass >= limit, before, middle)
    return lightest, even.to(tl.int32)


@triton.jit
def settle(
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
        ids = tl.load(list_ids + place, mask=mask, other=MOST)
        values = tl.load(list_values + place, mask=mask, other=NEGATIVE)
        keys = tl.where(mask, order_key(values), _KEY_LOWEST)
        masses = tl.where(mask, mass_of(values, peak, scale), 0.0)
    else:
        keys, masses, ids = 0, 0.0, 0
    key, tie = tl.full([], _KEY_LOWEST + 1, tl.int32), tl.full([], MOST, tl.int32)
    lightest, even = tl.full([], -1.0, tl.float32), tl.full([], MOST, tl.int32)
    if top_k > 0:
        key, tie = _cut_top_k(keys, masses, ids, base, num_ids, peak, scale, top_k, LISTED, BLOCK)
    good = tl.full([], 1, tl.int32)
    if top_p < 1:
        mass, count = _tally(keys, masses, ids, base, num_ids, peak, scale, key, tie, -1.0, MOST,
                             -1.0, MOST, LISTED, BLOCK)  # fmt: skip
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
                     floor, MOST, LISTED, BLOCK)  # fmt: skip
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
