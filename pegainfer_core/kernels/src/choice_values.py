# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""What kernels of a choice read alike: words of a row, its logits, their order and their masses.

Masses are those of `pegainfer_core.sampling.mass`, bit for bit: nothing here may be contracted to
fused multiply-adds by a kernel that uses them.
"""

import triton
import triton.language as tl

# Words of a row; `sampling.choice_words` says what is in them.
FLAGS = tl.constexpr(0)
SLOT = tl.constexpr(1)
FALLBACK = tl.constexpr(2)
TOP_K = tl.constexpr(3)
SCALE = tl.constexpr(4)
FLOOR = tl.constexpr(5)
TOP_P = tl.constexpr(6)
SEED = tl.constexpr(8)
POSITION = tl.constexpr(10)
SAMPLE = tl.constexpr(11)
SOURCE = tl.constexpr(12)
HISTORY = tl.constexpr(14)
ALLOWED = tl.constexpr(16)
BIASES = tl.constexpr(18)
NUM_BIASES = tl.constexpr(20)
NUM_MASKS = tl.constexpr(21)
MASKS = tl.constexpr(22)
REPETITION = tl.constexpr(24)
FREQUENCY = tl.constexpr(25)
PRESENCE = tl.constexpr(26)
NUM_LOGPROBS = tl.constexpr(27)

DRAWS = tl.constexpr(1)
"""The flag of rows that draw."""

NEGATIVE = tl.constexpr(float("-inf"))
INFINITE = tl.constexpr(float("inf"))
LARGEST = tl.constexpr(3.4028234663852886e38)
MOST = tl.constexpr(2**31 - 1)
_ROUNDER = tl.constexpr(12582912.0)


@triton.jit
def wide_word(words, FIELD: tl.constexpr):
    """A word of 64 bits: an address or a seed."""
    low = tl.load(words + FIELD).to(tl.uint32, bitcast=True).to(tl.uint64)
    high = tl.load(words + FIELD + 1).to(tl.uint32, bitcast=True).to(tl.uint64)
    return low | (high << 32)


@triton.jit
def real_word(words, FIELD: tl.constexpr):
    """A word that is a float32."""
    return tl.load(words + FIELD).to(tl.float32, bitcast=True)


@triton.jit
def row_logits(logits, words, row, vocab, ALIGNED: tl.constexpr):
    """Where a row's logits lie: those that rules were applied to, if any, else the model's."""
    own = wide_word(words, SOURCE).to(tl.int64)
    given = logits.to(tl.int64) + row.to(tl.int64) * vocab * 4
    base = tl.where(own != 0, own, given).to(tl.pointer_type(tl.float32))
    if ALIGNED:
        base = tl.multiple_of(base, 16)
    return base


@triton.jit
def load_logits(base, columns, mask):
    """Logits as a choice sees them: NaN is -inf, infinity the largest number."""
    values = tl.load(base + columns, mask=mask, other=NEGATIVE)
    values = tl.where(values != values, NEGATIVE, values)
    return tl.minimum(values, LARGEST)


@triton.jit
def order_key(values):
    """Integers in the order of the values; both zeros are equal."""
    bits = (values + 0.0).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def exp2_mass(y):
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
def mass_of(values, peak, scale):
    """Masses of logits beside the best one."""
    return exp2_mass((values - peak) * scale)


@triton.jit
def mass_halves(masses):
    """Integers (high, low) with mass = high * 2**21 + low, which 32 bits can sum up."""
    shifted = masses * 4.76837158203125e-07 + _ROUNDER
    low = (masses - (shifted - _ROUNDER) * 2097152.0) + _ROUNDER
    offset = 0x4B400000
    return shifted.to(tl.int32, bitcast=True) - offset, low.to(tl.int32, bitcast=True) - offset


@triton.jit
def joined_mass(high, low):
    """The sum of masses from the sums of their halves."""
    return tl.sum((high.to(tl.int64) << 21) + low.to(tl.int64), axis=0)
