"""The parity tests have teeth: each of these mistakes must fail the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from pegainfer_core.backend import AttentionWeights, DeltaWeights
from pegainfer_core.backend.numpy.numpy_ops import NumpyOps
from pegainfer_core.backend.numpy.numpy_recurrent_ops import NumpyRecurrentOps
from plugins.pegainfer_qwen35.tests.stepper import Stepper
from tests.hf import gate, golden

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pegainfer_core.backend import Batch, DeltaShape, RopeTable, StatePool, Tensor
    from plugins.pegainfer_qwen35.tests.conftest import Checkpoint

    Array = NDArray[np.float32]
    Mistake = Callable[[Stepper], None]

#: Past the end of a chunk of the delta rule, and single tokens.
CHUNKS = (40, 1, 1, 65)
#: Those of running requests; the rest are snapshots.
NUM_SLOTS = 32


def array(tensor: Tensor) -> Array:
    assert isinstance(tensor.storage, np.ndarray)
    return tensor.storage


def faults(stepper: Stepper, case: str) -> list[str]:
    found: list[str] = []
    for prompt in golden.load(case).prompts.values():
        found += gate.compare(stepper.logits(prompt.prompt, CHUNKS), prompt).faults
    return found


def deltas(stepper: Stepper) -> list[DeltaWeights]:
    mixers = [layer.mixer for layer in stepper.weights.layers]
    return [mixer for mixer in mixers if isinstance(mixer, DeltaWeights)]


def attentions(stepper: Stepper) -> list[AttentionWeights]:
    mixers = [layer.mixer for layer in stepper.weights.layers]
    return [mixer for mixer in mixers if isinstance(mixer, AttentionWeights)]


def no_decay(stepper: Stepper) -> None:
    for layer in deltas(stepper):
        array(layer.decay_rate).fill(0)


def no_decay_bias(stepper: Stepper) -> None:
    for layer in deltas(stepper):
        array(layer.decay_bias).fill(0)


def taps_reversed(stepper: Stepper) -> None:
    for layer in deltas(stepper):
        taps = array(layer.conv)
        taps[...] = taps[::-1].copy()


def norms_of_w(stepper: Stepper) -> None:
    """In place of 1 + w."""
    array(stepper.weights.norm)[...] -= 1


def output_norm_of_one_plus_w(stepper: Stepper) -> None:
    for layer in deltas(stepper):
        array(layer.norm)[...] += 1


def head_norms_of_w(stepper: Stepper) -> None:
    for layer in attentions(stepper):
        array(layer.head_norm)[...] -= 1


def update_strength_swapped_with_decay(stepper: Stepper) -> None:
    heads = stepper.model.delta_shape.num_value_heads
    for layer in deltas(stepper):
        rows = array(layer.projection)[-2 * heads :]
        rows[...] = np.roll(rows, heads, axis=0)


def queries_swapped_with_gates(stepper: Stepper) -> None:
    width = stepper.model.shape.query_width
    for layer in attentions(stepper):
        qkv = array(layer.qkv)
        queries = qkv[:width].copy()
        qkv[:width] = qkv[-width:]
        qkv[-width:] = queries


class Wrong(NumpyRecurrentOps):
    """Right as it stands."""


class NoOutputGate(Wrong):
    def sigmoid_mul(self, count: int, gates: Tensor, first: int, out: Tensor) -> None:
        pass


class NoGateBehindTheNorm(Wrong):
    def gated_norm(
        self,
        count: int,
        delta: Tensor,
        projected: Tensor,
        norm: Tensor,
        shape: DeltaShape,
        gated: Tensor,
    ) -> None:
        array(projected)[:, shape.conv_width : shape.conv_width + shape.value_width] = 1.2784645
        super().gated_norm(count, delta, projected, norm, shape, gated)


class KeyHeadsInTurn(Wrong):
    """Value head j reads key head j modulo their number."""

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
        super().causal_conv(batch, projected, taps, shape, states, layer, mixed)
        values = array(mixed)[: batch.num_tokens, 2 * shape.key_width :]
        heads = values.reshape(len(values), shape.num_value_heads, shape.value_dim)
        order = np.arange(shape.num_value_heads).reshape(-1, shape.num_key_heads).T.reshape(-1)
        heads[...] = heads[:, order].copy()


class _Forgetful(Wrong):
    """Loses a part of the state between steps."""

    part: str

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
        array(getattr(states, self.part))[:NUM_SLOTS] = 0
        super().causal_conv(batch, projected, taps, shape, states, layer, mixed)


class MemoryLostBetweenSteps(_Forgetful):
    part = "memory"


class InputsLostBetweenSteps(_Forgetful):
    part = "conv"


class NotOfUnitLength(Wrong):
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
        super().delta_rule(batch, mixed, projected, weights, shape, states, layer, delta)
        queries = array(mixed)[: batch.num_tokens, : shape.key_width]
        heads = queries.reshape(len(queries), shape.num_key_heads, shape.key_dim)
        length = np.sqrt((heads * heads).sum(axis=-1))
        group = shape.num_value_heads // shape.num_key_heads
        out = array(delta)[: batch.num_tokens].reshape(len(queries), shape.num_value_heads, -1)
        out *= np.repeat(length, group, axis=1)[..., None]


class EveryChannelTurns(NumpyOps):
    """The pairs of partial rotation in the channels behind them too."""

    def rope(
        self, batch: Batch, x: Tensor, num_heads: int, head_dim: int, table: RopeTable
    ) -> None:
        super().rope(batch, x, num_heads, head_dim, table)
        values = array(x)[: batch.num_tokens, : num_heads * head_dim]
        heads = values.reshape(len(values), num_heads, head_dim)
        heads[...] = np.roll(heads, head_dim // 2, axis=-1)
        super().rope(batch, x, num_heads, head_dim, table)
        heads[...] = np.roll(heads, head_dim // 2, axis=-1)


WEIGHTS: list[tuple[Mistake, str]] = [
    *((no_decay, case) for case in ("qwen35_ratio2", "qwen35_bf16")),
    (no_decay_bias, "qwen35_ratio1"),
    *((taps_reversed, case) for case in ("qwen35_ratio2", "qwen35_bf16")),
    *((norms_of_w, case) for case in ("qwen35_ratio2", "qwen35_bf16")),
    *((output_norm_of_one_plus_w, case) for case in ("qwen35_ratio4", "qwen35_bf16_tied")),
    *((head_norms_of_w, case) for case in ("qwen35_ratio1", "qwen35_bf16")),
    (update_strength_swapped_with_decay, "qwen35_ratio3"),
    (queries_swapped_with_gates, "qwen35_sizes"),
]
OPS = [
    *((NoOutputGate, case) for case in ("qwen35_ratio2", "qwen35_bf16")),
    (NoGateBehindTheNorm, "qwen35_ratio2"),
    *((KeyHeadsInTurn, case) for case in ("qwen35_ratio2", "qwen35_ratio3")),
    *((MemoryLostBetweenSteps, case) for case in ("qwen35_ratio2", "qwen35_bf16")),
    *((InputsLostBetweenSteps, case) for case in ("qwen35_ratio2", "qwen35_bf16")),
    (NotOfUnitLength, "qwen35_ratio4"),
]


@pytest.mark.parametrize(("mistake", "case"), WEIGHTS)
def test_wrong_weights_fail_the_gate(mistake: Mistake, case: str, checkpoint: Checkpoint) -> None:
    stepper = Stepper(checkpoint(case))
    mistake(stepper)
    assert faults(stepper, case)


@pytest.mark.parametrize(("ops", "case"), OPS)
def test_wrong_ops_fail_the_gate(ops: type[Wrong], case: str, checkpoint: Checkpoint) -> None:
    stepper = Stepper(checkpoint(case))
    stepper.model.recurrent_ops = ops(stepper.backend.ops)
    assert faults(stepper, case)


def test_full_rotation_fails_the_gate(checkpoint: Checkpoint) -> None:
    case = "qwen35_ratio2"
    assert faults(Stepper(checkpoint(case), ops=EveryChannelTurns()), case)


def test_the_same_ways_unspoiled_pass_it(checkpoint: Checkpoint) -> None:
    for case in ("qwen35_ratio2", "qwen35_bf16"):
        stepper = Stepper(checkpoint(case))
        stepper.model.recurrent_ops = Wrong(stepper.backend.ops)
        assert not faults(stepper, case)
