"""Ops of hybrid models: gated delta-rule layers beside attention whose output is gated.

The rules of `ops` hold: wide ops with a composition as their definition, and primitives that a
backend must have. They stand apart from `Ops` so that a backend may do without them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegainfer_core.backend.batch import Batch
    from pegainfer_core.backend.decoder import AttentionShape
    from pegainfer_core.backend.kv_pool import KvPool
    from pegainfer_core.backend.ops import Ops
    from pegainfer_core.backend.recurrent import DeltaShape, DeltaWeights
    from pegainfer_core.backend.state_pool import StatePool
    from pegainfer_core.backend.tensor import Tensor
    from pegainfer_core.backend.workspace import Workspace


class RecurrentOps(ABC):
    """Ops of one backend, beside its `Ops`.

    Shapes: T tokens of the step, H hidden width. Buffers have at least T rows.

    A row whose first token is at position 0 starts from a state of zeros, whatever its slot holds;
    any other goes on from its slot. Both leave their state behind their last token in the slot,
    and copies of it where the metadata's saves say so. Rows without a slot leave nothing.

    Args:
        ops: The same backend's.
    """

    def __init__(self, ops: Ops) -> None:
        self._ops = ops

    def attend_gated(
        self,
        batch: Batch,
        qkv_gates: Tensor,
        shape: AttentionShape,
        kv: KvPool,
        layer: int,
        attended: Tensor,
        workspace: Workspace,
    ) -> None:
        """`Ops.attend`, and each head's output times the sigmoid of its gates.

        Args:
            batch: The step.
            qkv_gates: [T, qkv_width + query_width], queries in front, gates at the end.
            shape: Of the attention.
            kv: The pages; those of this step's tokens are already written.
            layer: Index in the pages.
            attended: Out, [T, query_width].
            workspace: For scratch.
        """
        self._ops.attend(batch, qkv_gates, shape, kv, layer, attended, workspace)
        self.sigmoid_mul(batch.num_tokens, qkv_gates, shape.qkv_width, attended)

    def norm_project(
        self,
        batch: Batch,
        hidden: Tensor,
        norm: Tensor,
        norm_eps: float,
        weight: Tensor,
        projected: Tensor,
        workspace: Workspace,
    ) -> None:
        """`projected` [T, n] = norm of `hidden` @ `weight`^T; `hidden` is left as it is."""
        normed = workspace.buffer("normed", hidden.width, hidden.dtype)
        self._ops.rms_norm(batch.num_tokens, hidden, norm, norm_eps, normed)
        self._ops.linear(batch.num_tokens, normed, weight, projected)

    def gated_delta(
        self,
        batch: Batch,
        projected: Tensor,
        weights: DeltaWeights,
        shape: DeltaShape,
        states: StatePool,
        layer: int,
        gated: Tensor,
        workspace: Workspace,
    ) -> None:
        """Everything between the projections of a delta-rule layer.

        Convolution, delta rule, norm of each head's output, gate.

        Args:
            batch: The step.
            projected: [T, projected_width] from `norm_project`, left as it is.
            weights: The layer's parameters.
            shape: Of the layer.
            states: What rows carry from step to step.
            layer: Index in the states.
            gated: Out, [T, value_width].
            workspace: For scratch.
        """
        mixed = workspace.buffer("mixed", shape.conv_width, projected.dtype)
        delta = workspace.buffer("delta", shape.value_width, projected.dtype)
        self.causal_conv(batch, projected, weights.conv, shape, states, layer, mixed)
        self.delta_rule(batch, mixed, projected, weights, shape, states, layer, delta)
        self.gated_norm(batch.num_tokens, delta, projected, weights.norm, shape, gated)

    @abstractmethod
    def sigmoid_mul(self, count: int, gates: Tensor, first: int, out: Tensor) -> None:
        """`out` *= round(sigmoid(g)), g being the columns of `gates` from `first` on."""

    @abstractmethod
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
        """Convolve the first `conv_width` columns along each row, then silu.

        `mixed` = silu(round(sum over j of taps[j] * x[t - conv_taps + 1 + j])). The inputs before
        the row's first token are those kept in the state, which afterwards holds the last ones.
        """

    @abstractmethod
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
        """Read and update each value head's memory S [key_dim, value_dim], token by token.

        With q, k, v the heads of `mixed`, q and k brought to length 1 and q divided by
        sqrt(key_dim); beta = round(sigmoid(b)); g = decay_rate * softplus(a + decay_bias):
        S *= exp(g); S += outer(k, beta * (v - S^T k)); out = S^T q. All of it is in float32 but
        the result. Yang et al., arXiv:2412.06464; several tokens at once go by its chunked form.
        """

    @abstractmethod
    def gated_norm(
        self,
        count: int,
        delta: Tensor,
        projected: Tensor,
        norm: Tensor,
        shape: DeltaShape,
        gated: Tensor,
    ) -> None:
        """`gated` = round(rms_norm(`delta`) per head * silu(z)), silu in float32."""
