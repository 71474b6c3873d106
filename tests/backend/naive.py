"""The maths of the ops, written for clarity in float64: what the NumPy backend is checked against.

Takes and returns plain arrays; rounds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.floating]


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def silu(x: Array) -> Array:
    x = x.astype(np.float64)
    return np.where(x > -700, x / (1 + np.exp(-np.maximum(x, -700))), 0.0)


def rope(x: Array, angles: Array) -> Array:
    """x [tokens, heads, dim], angles [tokens, dim / 2]; pairs as complex numbers."""
    half = x.shape[-1] // 2
    pairs = x[..., :half].astype(np.float64) + 1j * x[..., half:]
    turned = pairs * np.exp(1j * angles)[:, None]
    return np.concatenate([turned.real, turned.imag], axis=-1)


def attention(queries: Array, keys: Array, values: Array, scale: float) -> Array:
    """The last tokens of a context ask: queries [n, heads, d]; keys, values [context, kv, d]."""
    count, heads, _ = queries.shape
    context, kv_heads, _ = keys.shape
    out = np.zeros(queries.shape)
    for token in range(count):
        seen = context - count + token + 1
        for head in range(heads):
            kv_head = head // (heads // kv_heads)
            scores = keys[:seen, kv_head].astype(np.float64) @ queries[token, head] * scale
            weights = np.exp(scores - scores.max())
            out[token, head] = weights @ values[:seen, kv_head] / weights.sum()
    return out


def bfloat16(x: Array) -> NDArray[np.float32]:
    """Round to nearest, ties to even, one value at a time by its neighbours' distance."""
    low_bits = np.ascontiguousarray(x, np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    toward_zero = low_bits.view(np.float32)
    away = (low_bits + np.uint32(0x10000)).view(np.float32)
    gap_low = np.abs(x.astype(np.float64) - toward_zero)
    gap_high = np.abs(away.astype(np.float64) - x)
    odd = (low_bits >> np.uint32(16)) & np.uint32(1) == 1
    take_away = (gap_high < gap_low) | ((gap_high == gap_low) & odd)
    return np.where(take_away, away, toward_zero)
