# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""Seeded random values on the device, bit for bit those of `pegainfer_core.weights.seeded`."""

import triton
import triton.language as tl

#: Counters of one stream: 2^20 values, 16 a counter.
_COUNTERS = tl.constexpr(1 << 16)


@triton.jit
def fill_quantiles(out, table, key, num_values, BLOCK: tl.constexpr):
    """`out`[i] = `table`[16-bit pick i]; grid (cdiv(num_values, 16 * BLOCK),).

    Picks are the 16-bit parts, lowest first, of NumPy's Philox (4 x 64 bits, 10 rounds) with the
    key (`key`, number of the 2^20-value block) and counters from 1 on.
    """
    counter = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c0 = (counter % _COUNTERS + 1).to(tl.uint64)
    c1 = tl.zeros([BLOCK], tl.uint64)
    c2 = tl.zeros([BLOCK], tl.uint64)
    c3 = tl.zeros([BLOCK], tl.uint64)
    k0 = tl.zeros([BLOCK], tl.uint64) + key
    k1 = (counter // _COUNTERS).to(tl.uint64)
    m0 = tl.full([BLOCK], 0xD2E7470EE14C6C93, tl.uint64)
    m1 = tl.full([BLOCK], 0xCA5A826395121157, tl.uint64)
    w0 = tl.full([BLOCK], 0x9E3779B97F4A7C15, tl.uint64)
    w1 = tl.full([BLOCK], 0xBB67AE8584CAA73B, tl.uint64)
    for _ in tl.static_range(10):
        high0 = tl.umulhi(m0, c0)
        high1 = tl.umulhi(m1, c2)
        low0 = m0 * c0
        low1 = m1 * c2
        c0 = high1 ^ c1 ^ k0
        c1 = low1
        c2 = high0 ^ c3 ^ k1
        c3 = low0
        k0 = k0 + w0
        k1 = k1 + w1
    _store_word(out, table, counter, c0, num_values, 0)
    _store_word(out, table, counter, c1, num_values, 1)
    _store_word(out, table, counter, c2, num_values, 2)
    _store_word(out, table, counter, c3, num_values, 3)


@triton.jit
def _store_word(out, table, counter, word, num_values, NUMBER: tl.constexpr):
    for part in tl.static_range(4):
        index = counter * 16 + NUMBER * 4 + part
        mask = index < num_values
        pick = ((word >> (16 * part)) & 0xFFFF).to(tl.int32)
        tl.store(out + index, tl.load(table + pick, mask=mask), mask=mask)
