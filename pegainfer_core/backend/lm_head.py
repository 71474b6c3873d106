"""The end of every decoder: logits of the hidden states that a forward left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.backend.dtype import DType

if TYPE_CHECKING:
    from pegainfer_core.backend.base import Backend
    from pegainfer_core.backend.batch import Batch
    from pegainfer_core.backend.tensor import Tensor
    from pegainfer_core.backend.workspace import Workspace

__all__ = ["LmHead"]


class LmHead:
    """The last norm and the head, with a buffer for the logits.

    Attributes:
        buffer: [max_rows, vocab] float32: what was computed last.

    Args:
        backend: Where steps run.
        norm: [hidden].
        norm_eps: Its epsilon.
        head: [vocab, hidden].
        workspace: Arena of the step buffers.
        max_rows: Most rows of logits at once.
    """

    def __init__(
        self,
        backend: Backend,
        norm: Tensor,
        norm_eps: float,
        head: Tensor,
        workspace: Workspace,
        max_rows: int,
    ) -> None:
        self._ops = backend.ops
        self._norm, self._norm_eps, self._head = norm, norm_eps, head
        self._workspace = workspace
        vocab_size = head.shape[0]
        self.buffer = workspace.buffer("logits", vocab_size, DType.FLOAT32, rows=max_rows)

    def logits(self, batch: Batch, hidden: Tensor, first: int, count: int) -> Tensor:
        """Logits of the step's `logit_tokens` [first, first + count).

        Args:
            batch: The step.
            hidden: [tokens, hidden], left by the forward.
            first: Index of the first.
            count: How many.

        Returns:
            [>= count, vocab] float32; the next call overwrites it.
        """
        self._ops.lm_head(
            batch,
            hidden,
            self._norm,
            self._norm_eps,
            self._head,
            first,
            count,
            self.buffer,
            self._workspace,
        )
        return self.buffer
