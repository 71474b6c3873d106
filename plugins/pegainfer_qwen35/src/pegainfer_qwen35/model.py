"""Qwen3.5's forward, on backend ops. Knows no request, and no array library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.backend import AttentionShape, DeltaShape, DeltaWeights, LmHead

if TYPE_CHECKING:
    from pegainfer_core.backend import (
        AttentionWeights,
        Backend,
        Batch,
        DType,
        KvPool,
        StatePool,
        Tensor,
        Workspace,
    )
    from pegainfer_qwen35.config import Qwen35Config
    from pegainfer_qwen35.weights import Qwen35Weights


class Qwen35Model:
    """A loaded model, its step buffers and its recurrent states.

    Implements `pegainfer_core.engine.DecoderModel`.

    Attributes:
        shape: Of the attention layers.
        delta_shape: Of the delta-rule layers.
        recurrent_ops: What those layers and gated attention call.
        states: What rows carry from step to step.
        logits_buffer: [rows, vocab] float32: what `logits` computed last.

    Args:
        config: Sizes.
        weights: Parameters.
        backend: Where they live and where steps run.
        dtype: Type of activations.
        workspace: Arena of the step buffers.
        states: With a slot for every row, of the model's layout.
        max_logit_rows: Most rows of logits at once.
    """

    def __init__(
        self,
        config: Qwen35Config,
        weights: Qwen35Weights,
        backend: Backend,
        dtype: DType,
        workspace: Workspace,
        states: StatePool,
        max_logit_rows: int,
    ) -> None:
        self._weights = weights
        self._ops, self.recurrent_ops = backend.ops, backend.recurrent_ops()
        self.shape = AttentionShape(
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            scale=config.head_dim**-0.5,
            norm_eps=config.rms_norm_eps,
        )
        delta = config.delta
        self.delta_shape = DeltaShape(
            num_key_heads=delta.num_key_heads,
            num_value_heads=delta.num_value_heads,
            key_dim=delta.key_dim,
            value_dim=delta.value_dim,
            conv_taps=delta.conv_taps,
            norm_eps=config.rms_norm_eps,
        )
        self.states = states
        self._rope = backend.rope_table(config.rope, workspace.max_context_tokens, dtype)
        self._workspace = workspace
        query_width = self.shape.query_width
        self._hidden = workspace.buffer("hidden", config.hidden_size, dtype)
        self._qkv = workspace.buffer("qkv_gates", self.shape.qkv_width + query_width, dtype)
        self._attended = workspace.buffer("attended", query_width, dtype)
        self._projected = workspace.buffer("delta_in", self.delta_shape.projected_width, dtype)
        self._gated = workspace.buffer("gated", self.delta_shape.value_width, dtype)
        self._activated = workspace.buffer("activated", config.intermediate_size, dtype)
        norm_eps, rows = config.rms_norm_eps, max_logit_rows
        self._head = LmHead(backend, weights.norm, norm_eps, weights.head, workspace, rows)
        self.logits_buffer = self._head.buffer

    def forward(self, batch: Batch, kv: KvPool) -> None:
        """Run the layers over a step's tokens: writes KV and states, leaves hidden states."""
        ops, workspace = self._ops, self._workspace
        hidden, activated = self._hidden, self._activated
        ops.embed(batch, self._weights.embedding, hidden)
        num_linear = 0
        for index, layer in enumerate(self._weights.layers):
            mixer, mlp = layer.mixer, layer.mlp
            if isinstance(mixer, DeltaWeights):
                self._mix_by_delta_rule(batch, mixer, num_linear)
                num_linear += 1
            else:
                self._mix_by_attention(batch, mixer, kv, index - num_linear)
            ops.norm_gate_up_act(batch, hidden, mlp, activated, workspace)
            ops.down_add(batch, activated, mlp.down, hidden, workspace)

    def freeze(self) -> None:
        """Add no step buffers from now on."""
        self._workspace.freeze()

    def logits(self, batch: Batch, first: int, count: int) -> Tensor:
        """Logits of the step's `logit_tokens` [first, first + count), after `forward`.

        Returns:
            [>= count, vocab] float32; the next call overwrites it.
        """
        return self._head.logits(batch, self._hidden, first, count)

    def _mix_by_delta_rule(self, batch: Batch, weights: DeltaWeights, layer: int) -> None:
        ops, shape, workspace = self.recurrent_ops, self.delta_shape, self._workspace
        projected, gated = self._projected, self._gated
        ops.norm_project(
            batch,
            self._hidden,
            weights.input_norm,
            shape.norm_eps,
            weights.projection,
            projected,
            workspace,
        )
        ops.gated_delta(batch, projected, weights, shape, self.states, layer, gated, workspace)
        self._ops.out_proj_add(batch, gated, weights.out, self._hidden, workspace)

    def _mix_by_attention(
        self, batch: Batch, weights: AttentionWeights, kv: KvPool, layer: int
    ) -> None:
        shape, rope, workspace = self.shape, self._rope, self._workspace
        qkv, attended = self._qkv, self._attended
        self._ops.norm_qkv_rope_write(
            batch, self._hidden, weights, shape, rope, kv, layer, qkv, workspace
        )
        self.recurrent_ops.attend_gated(batch, qkv, shape, kv, layer, attended, workspace)
        self._ops.out_proj_add(batch, attended, weights.out, self._hidden, workspace)
