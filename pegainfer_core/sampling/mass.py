"""Token probabilities as integers, so that sums are exact and equal on every machine.

A token's mass is its unnormalised probability `exp((logit - peak) / temperature)` in units of
2**-42. It is computed from IEEE single-precision additions, multiplications and roundings in a
fixed order (no library `exp`, whose last bit differs between processors; no fused multiply-add),
and summed as 64-bit integers, whose order does not matter. A kernel that follows the same steps
gets the same bits:

    y = max((logit - peak) * fl(log2(e) / temperature), -64)     n = rint(y)    f = y - n
    mass = trunc(p(f) * 2**(n + 42)),  p = the degree-6 Taylor polynomial of 2**f, Horner's scheme

On |f| <= 1/2 the polynomial is within 1.3e-7 of 2**f, about one unit in the last place. Tokens
29 nats or more below the peak have mass 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MASS_BITS", "MAX_VOCAB_SIZE", "PEAK_MASS", "token_masses"]

MASS_BITS = 42
PEAK_MASS = 1 << MASS_BITS
"""Mass of the most likely token."""

MAX_VOCAB_SIZE = 1 << 20
"""So that a sum of masses stays below 2**62."""

_LOWEST_EXPONENT = np.float32(-64)
_EXPONENT_BIAS = 127
_MANTISSA_BITS = 23
_EXP2_TAYLOR = tuple(np.float32(math.log(2) ** k / math.factorial(k)) for k in range(7))
_LARGEST = float(np.finfo(np.float32).max)
# Intermediates of this many tokens stay in the processor's cache.
_CHUNK_TOKENS = 32768


def token_masses(
    logits: NDArray[np.float32], peak: np.float32, temperature: float
) -> NDArray[np.int64]:
    """Masses of some tokens of one row.

    Args:
        logits: [n] float32, none above `peak`, no NaN; -inf has mass 0.
        peak: The row's largest logit, finite.
        temperature: Greater than 0.

    Returns:
        [n] int64, `PEAK_MASS` for logits equal to `peak`.
    """
    scale = np.float32(min(math.log2(math.e) / temperature, _LARGEST))
    masses = np.empty(len(logits), np.int64)
    with np.errstate(over="ignore"):
        for start in range(0, len(logits), _CHUNK_TOKENS):
            chunk = slice(start, start + _CHUNK_TOKENS)
            _masses_into(masses[chunk], logits[chunk], peak, scale)
    return masses


def _masses_into(
    out: NDArray[np.int64], logits: NDArray[np.float32], peak: np.float32, scale: np.float32
) -> None:
    fraction = logits - peak
    fraction *= scale
    np.maximum(fraction, _LOWEST_EXPONENT, out=fraction)
    whole = np.rint(fraction)
    fraction -= whole
    value = fraction * _EXP2_TAYLOR[-1]
    for coefficient in _EXP2_TAYLOR[-2:0:-1]:
        value += coefficient
        value *= fraction
    value += _EXP2_TAYLOR[0]
    exponent = whole.astype(np.int32)
    exponent += _EXPONENT_BIAS + MASS_BITS
    exponent <<= _MANTISSA_BITS
    value *= exponent.view(np.float32)
    np.copyto(out, value, casting="unsafe")
