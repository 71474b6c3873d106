# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""Log-probabilities of chosen tokens, their ranks and the most likely tokens, from raw logits.

A token is packed with its logit into 64 bits whose order is that of the ranks: falling logits, then
rising ids. A part's interleaved groups leave their best one; `report` takes the best of all groups,
looks for the next of that group, and so on.
"""

import triton
import triton.language as tl

from pegainfer_core.kernels.src.choice_values import (
    LARGEST,
    MOST,
    NEGATIVE,
    NUM_LOGPROBS,
    load_logits,
    order_key,
)

_NONE = tl.constexpr(-(2**63))


@triton.jit
def _pack(values, ids):
    keys = order_key(values).to(tl.int64)
    return (keys << 32) | (ids ^ MOST).to(tl.int64)


@triton.jit
def score_parts(
    logits, words, chosen, part_peaks, part_sums, part_ranks, groups, vocab, part_width,
    BLOCK: tl.constexpr, LANES: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """Sum of exponentials of a part, how many of its tokens go before the chosen one, its groups.

    The peak of a part that holds NaN is infinite, which no other part's is.
    `num_logprobs` is 0 for rows that want none, else the number of most likely tokens plus one.
    """
    row, part = tl.program_id(0), tl.program_id(1)
    count = tl.load(words + row * WORDS + NUM_LOGPROBS)
    if count > 0:
        base = logits + row.to(tl.int64) * vocab
        begin = part * part_width
        end = tl.minimum(begin + part_width, vocab)
        token = tl.maximum(tl.load(chosen + row), 0)
        value = tl.load(base + token)
        value = tl.minimum(tl.where(value != value, NEGATIVE, value), LARGEST)
        own = _pack(value, token)
        best = tl.full([BLOCK], _NONE, tl.int64)
        peak = tl.full([BLOCK], NEGATIVE, tl.float32)
        total = tl.zeros([BLOCK], tl.float32)
        before = tl.zeros([BLOCK], tl.int32)
        broken = tl.zeros([BLOCK], tl.int32)
        for start in range(begin, end, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            mask = columns < end
            given = tl.load(base + columns, mask=mask, other=NEGATIVE)
            broken |= (given != given).to(tl.int32)
            values = tl.minimum(tl.where(given != given, NEGATIVE, given), LARGEST)
            packed = tl.where(mask, _pack(values, columns), _NONE)
            if count > 1:
                best = tl.maximum(best, packed)
            before += (packed > own).to(tl.int32)
            higher = tl.maximum(peak, values)
            safe = tl.where(higher > NEGATIVE, higher, 0.0)
            total = total * tl.exp(peak - safe) + tl.exp(values - safe)
            peak = higher
        top = tl.max(peak, axis=0)
        total = total * tl.exp(peak - tl.where(top > NEGATIVE, top, 0.0))
        at = row * tl.num_programs(1) + part
        tl.store(part_peaks + at, tl.where(tl.max(broken, axis=0) > 0, float("inf"), top))
        tl.store(part_sums + at, tl.sum(total, axis=0))
        tl.store(part_ranks + at, tl.sum(before, axis=0))
        if count > 1:
            lanes = tl.max(tl.reshape(best, [BLOCK // LANES, LANES]), axis=0)
            tl.store(groups + at.to(tl.int64) * LANES + tl.arange(0, LANES), lanes)


@triton.jit
def report(
    logits, words, chosen, part_peaks, part_sums, part_ranks, groups, reports, vocab, part_width,
    num_parts, PARTS: tl.constexpr, LANES: tl.constexpr, DEPTH: tl.constexpr, WORDS: tl.constexpr,
    REPORT: tl.constexpr,
):  # fmt: skip
    """Write a row's report: raw logit, rank, peak, sum of exponentials, (id, logit) pairs."""
    row = tl.program_id(0)
    count = tl.load(words + row * WORDS + NUM_LOGPROBS)
    if count > 0:
        base = logits + row.to(tl.int64) * vocab
        reports += row * REPORT
        part = tl.arange(0, PARTS)
        mask = part < num_parts
        at = row * num_parts + part
        peaks = tl.load(part_peaks + at, mask=mask, other=NEGATIVE)
        totals = tl.load(part_sums + at, mask=mask, other=0.0)
        ranks = tl.load(part_ranks + at, mask=mask, other=0)
        peak = tl.max(peaks, axis=0)
        usable = (peak > NEGATIVE) & (peak < float("inf"))
        total = tl.sum(totals * tl.exp(peaks - tl.where(usable, peak, 0.0)), axis=0)
        value = tl.load(base + tl.maximum(tl.load(chosen + row), 0))
        value = tl.minimum(tl.where(value != value, NEGATIVE, value), LARGEST)
        tl.store(reports, value.to(tl.int32, bitcast=True))
        tl.store(reports + 1, tl.sum(ranks, axis=0) + 1)
        tl.store(reports + 2, peak.to(tl.int32, bitcast=True))
        tl.store(reports + 3, total.to(tl.int32, bitcast=True))
        group = tl.arange(0, PARTS * LANES)
        valid = (group < num_parts * LANES) & (count > 1)
        tops = tl.load(groups + row.to(tl.int64) * num_parts * LANES + group, mask=valid,
                       other=_NONE)  # fmt: skip
        for number in range(0, tl.minimum(count - 1, vocab)):
            top = tl.max(tops, axis=0)
            token = (top & 0xFFFFFFFF).to(tl.int32) ^ MOST
            value = tl.load(base + token)
            value = tl.minimum(tl.where(value != value, NEGATIVE, value), LARGEST)
            tl.store(reports + 4 + 2 * number, token)
            tl.store(reports + 5 + 2 * number, value.to(tl.int32, bitcast=True))
            begin = (token // part_width) * part_width
            end = tl.minimum(begin + part_width, vocab)
            following = tl.full([DEPTH], _NONE, tl.int64)
            for start in range(begin + (token - begin) % LANES, end, DEPTH * LANES):
                columns = start + tl.arange(0, DEPTH) * LANES
                inside = columns < end
                packed = tl.where(inside, _pack(load_logits(base, columns, inside), columns), _NONE)
                following = tl.maximum(following, tl.where(packed < top, packed, _NONE))
            tops = tl.where(tops == top, tl.max(following, axis=0), tops)
