"""Backend ops: wide ones for model code, each composed of primitive ones unless a backend fuses it.

An op is as wide as the widest fusion any backend wants, so that a backend with faster kernels
overrides ops and leaves model code alone. The default composition of a wide op is its definition:
other backends are tested against it. Ops write into what the caller gives (`out`-like arguments
and named workspace buffers), on the first `batch.num_tokens` rows; nothing is returned.

Every primitive computes in float32 and rounds its result once to the type of the tensor it writes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegainfer_core.backend.batch import Batch
    from pegainfer_core.backend.decoder import AttentionShape, AttentionWeights, MlpWeights
    from pegainfer_core.backend.kv_pool import KvPool
    from pegainfer_core.backend.lora_site import LoraSite
    from pegainfer_core.backend.rope import RopeTable
    from pegainfer_core.backend.tensor import Tensor
    from pegainfer_core.backend.workspace import Workspace


class Ops(ABC):
    """The ops of one backend.

    Shapes: T tokens of the step, H hidden width. Buffers have at least T rows.
    """

    @abstractmethod
    def embed(self, batch: Batch, table: Tensor, hidden: Tensor) -> None:
        """Look up the embedding of each token: `hidden` [T, H] from `table` [vocab, H]."""

    def norm_qkv_rope_write(
        self,
        batch: Batch,
        hidden: Tensor,
        weights: AttentionWeights,
        shape: AttentionShape,
        rope: RopeTable,
        kv: KvPool,
        layer: int,
        qkv: Tensor,
        workspace: Workspace,
        lora: LoraSite | None = None,
    ) -> None:
        """Everything before the attention of one layer.

        Norm, QKV projection, norms on query and key heads, RoPE on both, KV write.

        Args:
            batch: The step.
            hidden: [T, H], left as it is.
            weights: The layer's parameters.
            shape: Of the attention.
            rope: Tables.
            kv: Where keys and values go.
            layer: Index in the pages.
            qkv: Out, [T, qkv_width]; afterwards the first `query_width` columns are the queries,
                the rest is undefined.
            workspace: For scratch.
            lora: What rows with an adapter add to queries, keys and values.
        """
        count = batch.num_tokens
        normed = workspace.buffer("normed", hidden.width, hidden.dtype)
        self.rms_norm(count, hidden, weights.input_norm, shape.norm_eps, normed)
        self.linear(count, normed, weights.qkv, qkv)
        if lora is not None:
            self.add_lora(batch, normed, lora, qkv, workspace)
        self.head_norm(count, qkv, weights.head_norm, shape.norm_eps)
        self.rope(batch, qkv, shape.num_heads + shape.num_kv_heads, shape.head_dim, rope)
        self.kv_write(batch, qkv, shape, kv, layer)

    def attend(
        self,
        batch: Batch,
        qkv: Tensor,
        shape: AttentionShape,
        kv: KvPool,
        layer: int,
        attended: Tensor,
        workspace: Workspace,
    ) -> None:
        """Causal attention of each row's queries over the row's whole context.

        Args:
            batch: The step.
            qkv: [T, qkv_width], queries in front.
            shape: Of the attention.
            kv: The pages; those of this step's tokens are already written.
            layer: Index in the pages.
            attended: Out, [T, query_width].
            workspace: For scratch.
        """
        self.paged_attention(batch, qkv, shape, kv, layer, attended, workspace)

    def out_proj_add(
        self,
        batch: Batch,
        attended: Tensor,
        weight: Tensor,
        hidden: Tensor,
        workspace: Workspace,
        lora: LoraSite | None = None,
    ) -> None:
        """Add the output projection: `hidden` [T, H] += `attended` @ `weight`^T.

        `lora` is what rows with an adapter add to that.
        """
        self._linear_add(batch, attended, weight, hidden, workspace)
        if lora is not None:
            self.add_lora(batch, attended, lora, hidden, workspace)

    def norm_gate_up_act(
        self,
        batch: Batch,
        hidden: Tensor,
        weights: MlpWeights,
        activated: Tensor,
        workspace: Workspace,
        lora: LoraSite | None = None,
    ) -> None:
        """First half of the MLP: `activated` [T, intermediate] = silu(gate x) * (up x).

        x is the norm of `hidden`, which is left as it is. `lora` is what rows with an adapter add
        to gate and up.
        """
        count = batch.num_tokens
        normed = workspace.buffer("normed", hidden.width, hidden.dtype)
        gate_up = workspace.buffer("gate_up", weights.gate_up.shape[0], hidden.dtype)
        self.rms_norm(count, hidden, weights.norm, weights.norm_eps, normed)
        self.linear(count, normed, weights.gate_up, gate_up)
        if lora is not None:
            self.add_lora(batch, normed, lora, gate_up, workspace)
        self.silu_mul(count, gate_up, activated)

    def down_add(
        self,
        batch: Batch,
        activated: Tensor,
        weight: Tensor,
        hidden: Tensor,
        workspace: Workspace,
        lora: LoraSite | None = None,
    ) -> None:
        """Second half of the MLP: `hidden` [T, H] += `activated` @ `weight`^T.

        `lora` is what rows with an adapter add to that.
        """
        self._linear_add(batch, activated, weight, hidden, workspace)
        if lora is not None:
            self.add_lora(batch, activated, lora, hidden, workspace)

    def lm_head(
        self,
        batch: Batch,
        hidden: Tensor,
        norm: Tensor,
        norm_eps: float,
        head: Tensor,
        first: int,
        count: int,
        logits: Tensor,
        workspace: Workspace,
    ) -> None:
        """Logits of some of the step's `logit_tokens`: final norm and head, only for them.

        Args:
            batch: The step.
            hidden: [T, H] after the last layer.
            norm: [H].
            norm_eps: Its epsilon.
            head: [vocab, H].
            first: First entry of the metadata's `logit_tokens`.
            count: Number of entries.
            logits: Out, [>= count, vocab] float32. They are not rounded to the model's type: ties
                that rounding would make are decided by the numbers.
            workspace: For scratch.
        """
        rows = logits.shape[0]
        gathered = workspace.buffer("logit_hidden", hidden.width, hidden.dtype, rows)
        normed = workspace.buffer("logit_normed", hidden.width, hidden.dtype, rows)
        self.take_logit_tokens(batch, first, count, hidden, gathered)
        self.rms_norm(count, gathered, norm, norm_eps, normed)
        self.linear(count, normed, head, logits)

    def _linear_add(
        self, batch: Batch, x: Tensor, weight: Tensor, hidden: Tensor, workspace: Workspace
    ) -> None:
        projected = workspace.buffer("projected", hidden.width, hidden.dtype)
        self.linear(batch.num_tokens, x, weight, projected)
        self.add(batch.num_tokens, projected, hidden)

    @abstractmethod
    def take_logit_tokens(
        self, batch: Batch, first: int, count: int, x: Tensor, out: Tensor
    ) -> None:
        """Copy rows: `out`[i] = `x`[logit_tokens[first + i]] for i < `count`."""

    @abstractmethod
    def rms_norm(self, count: int, x: Tensor, weight: Tensor, eps: float, out: Tensor) -> None:
        """`out` = weight * round(x / sqrt(mean(x^2) + eps)) over each of the first `count` rows.

        The inner rounding is to the type of `weight`: transformers multiplies in that type, and in
        float32 for norms whose weights are kept as their distance from one.
        """

    @abstractmethod
    def linear(self, count: int, x: Tensor, weight: Tensor, out: Tensor) -> None:
        """`out` [count, n] = `x` [count, k] @ `weight`^T, weight [n, k]."""

    @abstractmethod
    def head_norm(self, count: int, x: Tensor, weight: Tensor, eps: float) -> None:
        """`rms_norm` in place on the first heads of each row of `x`, weight [heads, head_dim]."""

    @abstractmethod
    def rope(
        self, batch: Batch, x: Tensor, num_heads: int, head_dim: int, table: RopeTable
    ) -> None:
        """Turn the first `num_heads` heads of each row of `x` in place, by the row's position.

        Half-split: y[i] = x[i] cos[i] - x[i + d/2] sin[i]; y[i + d/2] = x[i + d/2] cos[i] +
        x[i] sin[i], with d the rotary width; further channels stay.
        """

    @abstractmethod
    def kv_write(
        self, batch: Batch, qkv: Tensor, shape: AttentionShape, kv: KvPool, layer: int
    ) -> None:
        """Store each token's keys and values, the columns behind the queries, at its slot."""

    @abstractmethod
    def paged_attention(
        self,
        batch: Batch,
        qkv: Tensor,
        shape: AttentionShape,
        kv: KvPool,
        layer: int,
        attended: Tensor,
        workspace: Workspace,
    ) -> None:
        """softmax(scale q k^T) v per head; a token sees the positions up to its own.

        Scores and probabilities stay in float32; only the result is rounded.
        """

    @abstractmethod
    def silu_mul(self, count: int, gate_up: Tensor, out: Tensor) -> None:
        """`out` = round(silu(gate)) * up, gate and up being the halves of each row."""

    @abstractmethod
    def add(self, count: int, x: Tensor, out: Tensor) -> None:
        """`out` += `x` on the first `count` rows."""

    @abstractmethod
    def add_lora(
        self, batch: Batch, x: Tensor, site: LoraSite, out: Tensor, workspace: Workspace
    ) -> None:
        """Add what adapters make of `x` [T, k] to `out` [T, n]; rows without one stay as they are.

        x @ A^T is rounded to the type of `x`, what is added to `out` is not; their sum is.
        """

    @abstractmethod
    def argmax(self, count: int, logits: Tensor, best: Tensor, workspace: Workspace) -> None:
        """The first best column of each of the first `count` rows.

        Args:
            count: Rows.
            logits: [>= count, n] float32, n at most 2^24.
            best: Out, [>= count, 2] float32: value and index. The value is not finite when any
                value of the row is not a number.
            workspace: For scratch.
        """
