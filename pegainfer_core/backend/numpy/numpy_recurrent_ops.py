"""The primitive ops of hybrid models on NumPy: from tensors to arrays, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import numpy as np

from pegainfer_core.backend.dtype import DType
from pegainfer_core.backend.numpy import kernels
from pegainfer_core.backend.numpy.arrays import floats
from pegainfer_core.backend.numpy.delta_rule import (
    DeltaInputs,
    run_delta_rule,
    sigmoid,
    softplus,
    unit_length,
)
from pegainfer_core.backend.numpy.numpy_batch import NumpyBatch, SingleRows
from pegainfer_core.backend.recurrent_ops import RecurrentOps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pegainfer_core.backend.batch import Batch
    from pegainfer_core.backend.numpy.arrays import FloatArray
    from pegainfer_core.backend.numpy.numpy_batch import RowSpan
    from pegainfer_core.backend.recurrent import DeltaShape, DeltaWeights
    from pegainfer_core.backend.state_pool import StatePool
    from pegainfer_core.backend.tensor import Tensor


_ROWS_AT_ONCE: Final = 16


class NumpyRecurrentOps(RecurrentOps):
    """Reference for other backends' ops."""

    def sigmoid_mul(self, count: int, gates: Tensor, first: int, out: Tensor) -> None:
        """See `RecurrentOps.sigmoid_mul`."""
        share = sigmoid(floats(gates)[:count, first : first + out.width])
        _round(share, out.dtype)
        result = floats(out)[:count]
        result *= share
        _round(result, out.dtype)

    def causal_conv(
        self,
        batch: Batch,
        projected: Tensor,
        taps: Tensor,
        shape: DeltaShape,
        states: StatePool,
        layer: int,
        mixed: Tensor,
    ) -> None:
        """See `RecurrentOps.causal_conv`."""
        inputs, weights = floats(projected)[:, : shape.conv_width], floats(taps)
        stored, out = floats(states.conv), floats(mixed)
        numpy_batch = cast(NumpyBatch, batch)
        singles = numpy_batch.single_rows
        if len(singles.tokens):
            before = stored[singles.slots, layer]
            before[singles.is_first] = 0
            seen = np.concatenate([before, inputs[singles.tokens, None]], axis=1)
            out[singles.tokens] = _silu((seen * weights).sum(axis=1), mixed.dtype)
            _keep(stored, layer, singles, seen[:, 1:])
        for row in numpy_batch.longer_rows:
            before = stored[row.slot, layer]
            if _is_first(row):
                before = np.zeros_like(before)
            seen = np.concatenate([before, inputs[row.first : row.end]])
            count = row.end - row.first
            result = sum(seen[j : j + count] * weights[j] for j in range(shape.conv_taps))
            out[row.first : row.end] = _silu(np.asarray(result), mixed.dtype)
            for end, slot in _states_to_keep(numpy_batch, row):
                stored[slot, layer] = seen[end : end + shape.conv_taps - 1]

    def delta_rule(
        self,
        batch: Batch,
        mixed: Tensor,
        projected: Tensor,
        weights: DeltaWeights,
        shape: DeltaShape,
        states: StatePool,
        layer: int,
        delta: Tensor,
    ) -> None:
        """See `RecurrentOps.delta_rule`."""
        inputs = _delta_inputs(batch.num_tokens, mixed, projected, weights, shape)
        stored = floats(states.memory)
        result = floats(delta)[: batch.num_tokens]
        heads = result.reshape(-1, shape.num_value_heads, shape.value_dim).transpose(1, 0, 2)
        numpy_batch = cast(NumpyBatch, batch)
        for singles in _tiles(numpy_batch.single_rows):
            memory = stored[singles.slots, layer]
            memory[singles.is_first] = 0
            heads[:, singles.tokens] = _run_side_by_side(inputs, singles.tokens, memory)
            _keep(stored, layer, singles, memory)
        for row in numpy_batch.longer_rows:
            memory = stored[row.slot, layer].copy()
            if _is_first(row):
                memory.fill(0)
            start = row.first
            for end, slot in _states_to_keep(numpy_batch, row):
                stop = row.first + end
                if stop > start:
                    out = np.empty((len(heads), stop - start, shape.value_dim), np.float32)
                    run_delta_rule(inputs.part(start, stop), memory, out)
                    heads[:, start:stop] = out
                    start = stop
                stored[slot, layer] = memory
        _round(result, delta.dtype)

    def gated_norm(
        self,
        count: int,
        delta: Tensor,
        projected: Tensor,
        norm: Tensor,
        shape: DeltaShape,
        gated: Tensor,
    ) -> None:
        """See `RecurrentOps.gated_norm`."""
        by_heads = (count, shape.num_value_heads, shape.value_dim)
        x, out = floats(delta)[:count].reshape(by_heads), floats(gated)[:count]
        normed = kernels.bind_norm(x, out.reshape(by_heads))
        kernels.normalise(normed, floats(norm), shape.norm_eps, gated.dtype is DType.BFLOAT16)
        first = shape.conv_width
        gate = floats(projected)[:count, first : first + shape.value_width]
        out *= gate * sigmoid(gate)
        _round(out, gated.dtype)


def _tiles(singles: SingleRows) -> Iterator[SingleRows]:
    """Few rows at a time: their memories are copied, and there may be gigabytes of them."""
    for first in range(0, len(singles.tokens), _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        here = (singles.saves >= first) & (singles.saves < first + _ROWS_AT_ONCE)
        yield SingleRows(
            singles.tokens[rows],
            singles.slots[rows],
            singles.is_first[rows],
            singles.saves[here] - first,
            singles.save_slots[here],
        )


def _run_side_by_side(
    inputs: DeltaInputs, tokens: NDArray[np.int64], memory: FloatArray
) -> FloatArray:
    """One token each of several rows.

    Args:
        inputs: Of the step.
        tokens: [rows].
        memory: [rows, heads, key_dim, value_dim], updated.

    Returns:
        [heads, rows, value_dim].
    """
    rows, heads, key_dim, value_dim = memory.shape
    own = DeltaInputs(
        *(
            array[:, tokens].swapaxes(0, 1).reshape(rows * heads, 1, *array.shape[2:])
            for array in inputs
        )
    )
    out = np.empty((rows * heads, 1, value_dim), np.float32)
    run_delta_rule(own, memory.reshape(rows * heads, key_dim, value_dim), out)
    return out.reshape(rows, heads, value_dim).swapaxes(0, 1)


def _keep(stored: FloatArray, layer: int, singles: SingleRows, values: FloatArray) -> None:
    """Leave the states behind single tokens in their slots, and copies where they are wanted."""
    stored[singles.slots, layer] = values
    if len(singles.saves):
        stored[singles.save_slots, layer] = values[singles.saves]


def _is_first(row: RowSpan) -> bool:
    return row.context == row.end - row.first


def _states_to_keep(batch: NumpyBatch, row: RowSpan) -> Iterator[tuple[int, int]]:
    """Tokens of the row, and the slot for the state behind them; ends with the row itself."""
    for end, slot in batch.saves:
        if row.first < end <= row.end:
            yield end - row.first, slot
    yield row.end - row.first, row.slot


def _delta_inputs(
    count: int, mixed: Tensor, projected: Tensor, weights: DeltaWeights, shape: DeltaShape
) -> DeltaInputs:
    """What the delta rule takes of a step's tokens."""
    width = shape.key_width
    x, rest = floats(mixed)[:count], floats(projected)[:count, shape.conv_width :]
    queries, keys = (
        unit_length(part.reshape(count, shape.num_key_heads, shape.key_dim))
        for part in (x[:, :width], x[:, width : 2 * width])
    )
    values = x[:, 2 * width :].reshape(count, shape.num_value_heads, shape.value_dim)
    strength_in, decay_in = np.split(rest[:, shape.value_width :], 2, axis=1)
    strength = sigmoid(strength_in)
    _round(strength, projected.dtype)
    log_decay = floats(weights.decay_rate) * softplus(decay_in + floats(weights.decay_bias))
    group = shape.num_value_heads // shape.num_key_heads
    queries *= np.float32(shape.key_dim**-0.5)
    return DeltaInputs(
        np.repeat(queries, group, axis=1).transpose(1, 0, 2),
        np.repeat(keys, group, axis=1).transpose(1, 0, 2),
        values.transpose(1, 0, 2),
        log_decay.T,
        strength.T,
    )


def _silu(values: FloatArray, dtype: DType) -> FloatArray:
    _round(values, dtype)
    values *= sigmoid(values)
    _round(values, dtype)
    return values


def _round(values: FloatArray, dtype: DType) -> None:
    if dtype is DType.BFLOAT16:
        kernels.round_bfloat16(values, np.empty(values.shape, np.float32))
