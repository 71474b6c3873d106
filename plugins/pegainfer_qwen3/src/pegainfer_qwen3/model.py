"""Qwen3's forward, on backend ops. Knows no request, and no array library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.backend import AttentionShape, LayerLora, LmHead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.backend import Backend, Batch, DType, KvPool, Tensor, Workspace
    from pegainfer_qwen3.config import Qwen3Config
    from pegainfer_qwen3.weights import Qwen3Weights


class Qwen3Model:
    """A loaded model and its step buffers.

    Attributes:
        shape: Of the attention.
        logits_buffer: [rows, vocab] float32: what `logits` computed last.

    Args:
        config: Sizes.
        weights: Parameters, all of type `dtype`.
        backend: Where they live and where steps run.
        dtype: Type of activations.
        workspace: Arena of the step buffers.
        max_logit_rows: Most rows of logits at once.
        lora: Of each layer, what rows with an adapter add; None if there are no adapters.
    """

    def __init__(
        self,
        config: Qwen3Config,
        weights: Qwen3Weights,
        backend: Backend,
        dtype: DType,
        workspace: Workspace,
        max_logit_rows: int,
        lora: Sequence[LayerLora] | None = None,
    ) -> None:
        self._weights = weights
        self._no_lora = (LayerLora(),) * config.num_layers
        self._lora = self._no_lora if lora is None else tuple(lora)
        self._ops = backend.ops
        self.shape = AttentionShape(
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            scale=config.head_dim**-0.5,
            norm_eps=config.rms_norm_eps,
        )
        self._rope = backend.rope_table(config.rope, workspace.max_context_tokens, dtype)
        self._workspace = workspace
        self._hidden = workspace.buffer("hidden", config.hidden_size, dtype)
        self._qkv = workspace.buffer("qkv", self.shape.qkv_width, dtype)
        self._attended = workspace.buffer("attended", self.shape.query_width, dtype)
        self._activated = workspace.buffer("activated", config.intermediate_size, dtype)
        norm_eps, rows = config.rms_norm_eps, max_logit_rows
        self._head = LmHead(backend, weights.norm, norm_eps, weights.head, workspace, rows)
        self.logits_buffer = self._head.buffer

    def forward(self, batch: Batch, kv: KvPool) -> None:
        """Run the layers over a step's tokens: writes their KV, leaves their hidden states."""
        ops, workspace = self._ops, self._workspace
        hidden, qkv = self._hidden, self._qkv
        attended, activated = self._attended, self._activated
        shape, rope = self.shape, self._rope
        # Steps without adapters are what they are without LoRA.
        adapters = self._lora if batch.adapted else self._no_lora
        ops.embed(batch, self._weights.embedding, hidden)
        for index, (layer, lora) in enumerate(zip(self._weights.layers, adapters, strict=True)):
            attention, mlp = layer.attention, layer.mlp
            ops.norm_qkv_rope_write(
                batch, hidden, attention, shape, rope, kv, index, qkv, workspace, lora.qkv
            )
            ops.attend(batch, qkv, shape, kv, index, attended, workspace)
            ops.out_proj_add(batch, attended, attention.out, hidden, workspace, lora.out)
            ops.norm_gate_up_act(batch, hidden, mlp, activated, workspace, lora.gate_up)
            ops.down_add(batch, activated, mlp.down, hidden, workspace, lora.down)

    def freeze(self) -> None:
        """Add no step buffers from now on."""
        self._workspace.freeze()

    def logits(self, batch: Batch, first: int, count: int) -> Tensor:
        """Logits of the step's `logit_tokens` [first, first + count), after `forward`.

        Returns:
            [>= count, vocab] float32; the next call overwrites it.
        """
        return self._head.logits(batch, self._hidden, first, count)
