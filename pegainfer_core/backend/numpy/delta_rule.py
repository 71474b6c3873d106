"""The gated delta rule on arrays: one token, or chunks of a sequence. Knows no tensor and no step.

The chunked form is that of Yang et al., arXiv:2412.06464: within a chunk the updates depend on each
other through a unit lower triangular system, between chunks only through the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pegainfer_core.backend.numpy.arrays import FloatArray

CHUNK_TOKENS: Final = 64
_SOLVED_AT_ONCE: Final = 16

_LENGTH_EPS: Final = np.float32(1e-6)
_MAX_EXPONENT: Final = np.float32(88)
_LINEAR_FROM: Final = np.float32(20)


class DeltaInputs(NamedTuple):
    """Consecutive tokens of one sequence, float32; queries and keys repeated for value heads.

    Attributes:
        queries: [heads, n, key_dim], of length 1 / sqrt(key_dim).
        keys: [heads, n, key_dim], of length 1.
        values: [heads, n, value_dim].
        log_decay: [heads, n], at most 0.
        strength: [heads, n], beta.
    """

    queries: FloatArray
    keys: FloatArray
    values: FloatArray
    log_decay: FloatArray
    strength: FloatArray

    def part(self, first: int, end: int) -> DeltaInputs:
        """Tokens [first, end)."""
        return DeltaInputs(*(array[:, first:end] for array in self))


def run_delta_rule(inputs: DeltaInputs, memory: FloatArray, out: FloatArray) -> None:
    """Go through all tokens.

    Args:
        inputs: n tokens.
        memory: [heads, key_dim, value_dim]; afterwards the one behind the last token.
        out: [heads, n, value_dim].
    """
    count = inputs.values.shape[1]
    if count == 1:
        _step(inputs, memory, out)
        return
    for first in range(0, count, CHUNK_TOKENS):
        end = min(first + CHUNK_TOKENS, count)
        _chunk(inputs.part(first, end), memory, out[:, first:end])


def _step(inputs: DeltaInputs, memory: FloatArray, out: FloatArray) -> None:
    queries, keys, values, log_decay, strength = inputs
    memory *= np.exp(log_decay)[..., None]
    written = strength[..., None] * (values - keys @ memory)
    memory += keys.transpose(0, 2, 1) * written
    np.matmul(queries, memory, out)


def _chunk(inputs: DeltaInputs, memory: FloatArray, out: FloatArray) -> None:
    queries, keys, values, log_decay, strength = inputs
    count, beta = values.shape[1], strength[..., None]
    since_start = np.cumsum(log_decay, axis=1)
    grown = np.exp(since_start)[..., None]
    # Only past tokens: a difference the other way round may be too large for exp.
    past = np.tri(count, dtype=np.bool_)
    apart = np.where(past, since_start[:, :, None] - since_start[:, None, :], -np.inf)
    decay = np.exp(apart)
    # What each token writes depends on what those before it in the chunk have written.
    system = beta * (keys @ keys.transpose(0, 2, 1)) * decay
    written = beta * (values - (keys * grown) @ memory)
    _substitute(system, written)
    scores = (queries @ keys.transpose(0, 2, 1)) * decay
    np.matmul(queries * grown, memory, out)
    out += scores @ written
    left = np.exp(since_start[:, -1:] - since_start)[..., None]
    memory *= grown[:, -1:]
    memory += (keys * left).transpose(0, 2, 1) @ written


def _substitute(system: FloatArray, right: FloatArray) -> None:
    """Solve by forward substitution, in place; a quarter of the time of a general solver.

    Args:
        system: [heads, n, n], unit lower triangular: only what is below the diagonal is read.
        right: [heads, n, columns], the right side; afterwards the solution.
    """
    count = right.shape[1]
    for first in range(0, count, _SOLVED_AT_ONCE):
        end = min(first + _SOLVED_AT_ONCE, count)
        right[:, first:end] -= system[:, first:end, :first] @ right[:, :first]
        for row in range(first + 1, end):
            known = right[:, first:row]
            right[:, row] -= (system[:, row, None, first:row] @ known)[:, 0]


def unit_length(heads: FloatArray) -> FloatArray:
    """Each vector of the last axis over its length."""
    squares = np.vecdot(heads, heads)[..., None]
    unit: FloatArray = heads / np.sqrt(squares + _LENGTH_EPS)
    return unit


def sigmoid(values: FloatArray) -> FloatArray:
    """1 / (1 + exp(-x))."""
    result = np.negative(values)
    np.minimum(result, _MAX_EXPONENT, out=result)
    np.exp(result, out=result)
    result += 1
    np.reciprocal(result, out=result)
    return result


def softplus(values: FloatArray) -> FloatArray:
    """log(1 + exp(x))."""
    bent = np.empty_like(values)
    np.minimum(values, _LINEAR_FROM, out=bent)
    np.log1p(np.exp(bent, out=bent), out=bent)
    np.copyto(bent, values, where=values > _LINEAR_FROM)
    return bent
