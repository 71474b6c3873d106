"""The primitive ops on NumPy. The wide ops are the base class's compositions of these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import numpy as np

from pegainfer_core.backend.numpy.arrays import floats, round_to
from pegainfer_core.backend.numpy.attention import attend_rows, write_kv
from pegainfer_core.backend.numpy.numpy_batch import NumpyBatch
from pegainfer_core.backend.ops import Ops

if TYPE_CHECKING:
    from pegainfer_core.backend.batch import Batch
    from pegainfer_core.backend.decoder import AttentionShape
    from pegainfer_core.backend.dtype import DType
    from pegainfer_core.backend.kv_pool import KvPool
    from pegainfer_core.backend.numpy.arrays import FloatArray
    from pegainfer_core.backend.rope import RopeTable
    from pegainfer_core.backend.tensor import Tensor
    from pegainfer_core.backend.workspace import Workspace

_MAX_BY_VECTOR: Final = 4
"""Up to this many rows are multiplied one by one."""


class NumpyOps(Ops):
    """Reference and CPU backend: every other backend's ops are compared with these."""

    def embed(self, batch: Batch, table: Tensor, hidden: Tensor) -> None:
        """See `Ops.embed`."""
        token_ids = cast(NumpyBatch, batch).token_ids
        floats(hidden)[: batch.num_tokens] = floats(table)[token_ids]

    def take_logit_tokens(
        self, batch: Batch, first: int, count: int, x: Tensor, out: Tensor
    ) -> None:
        """See `Ops.take_logit_tokens`."""
        tokens = batch.metadata.logit_tokens[first : first + count]
        np.take(floats(x), tokens, axis=0, out=floats(out)[:count])

    def rms_norm(self, count: int, x: Tensor, weight: Tensor, eps: float, out: Tensor) -> None:
        """See `Ops.rms_norm`."""
        _normalise(floats(x)[:count], floats(weight), eps, floats(out)[:count], out.dtype)

    def linear(self, count: int, x: Tensor, weight: Tensor, out: Tensor) -> None:
        """See `Ops.linear`."""
        rows, matrix, result = floats(x)[:count], floats(weight), floats(out)[:count]
        if count <= _MAX_BY_VECTOR:
            # A product with a vector reads the matrix at the speed of memory; one with a few rows
            # repacks it first, which takes as long as four such readings.
            for row, row_result in zip(rows, result, strict=True):
                np.dot(matrix, row, out=row_result)
        else:
            np.matmul(rows, matrix.T, out=result)
        round_to(result, out.dtype)

    def head_norm(self, count: int, x: Tensor, weight: Tensor, eps: float) -> None:
        """See `Ops.head_norm`."""
        num_heads, head_dim = weight.shape
        heads = floats(x)[:count, : num_heads * head_dim].reshape(count, num_heads, head_dim)
        _normalise(heads, floats(weight), eps, heads, x.dtype)

    def rope(
        self, batch: Batch, x: Tensor, num_heads: int, head_dim: int, table: RopeTable
    ) -> None:
        """See `Ops.rope`."""
        count, half = batch.num_tokens, table.cos.width
        cos, sin = cast(NumpyBatch, batch).turns(table)
        heads = floats(x)[:count, : num_heads * head_dim].reshape(count, num_heads, head_dim)
        halves = heads[..., : 2 * half].reshape(count, num_heads, 2, half)
        swapped = halves[:, :, ::-1] * sin
        halves *= cos
        halves += swapped
        round_to(halves, x.dtype)

    def kv_write(
        self, batch: Batch, qkv: Tensor, shape: AttentionShape, kv: KvPool, layer: int
    ) -> None:
        """See `Ops.kv_write`."""
        values = floats(qkv)[: batch.num_tokens, shape.query_width : shape.qkv_width]
        write_kv(cast(NumpyBatch, batch), values, kv, layer)

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
        """See `Ops.paged_attention`."""
        result = floats(attended)[: batch.num_tokens]
        queries = floats(qkv)[: batch.num_tokens, : shape.query_width]
        attend_rows(cast(NumpyBatch, batch), queries, shape, kv, layer, result, workspace)
        round_to(result, attended.dtype)

    def silu_mul(self, count: int, gate_up: Tensor, out: Tensor) -> None:
        """See `Ops.silu_mul`."""
        both, result = floats(gate_up)[:count], floats(out)[:count]
        gate, up = both[:, : out.width], both[:, out.width :]
        np.negative(gate, out=result)
        with np.errstate(over="ignore"):  # exp of a large -gate is inf: silu is then -0.
            np.exp(result, out=result)
        result += 1
        np.divide(gate, result, out=result)
        round_to(result, out.dtype)
        result *= up
        round_to(result, out.dtype)

    def add(self, count: int, x: Tensor, out: Tensor) -> None:
        """See `Ops.add`."""
        result = floats(out)[:count]
        result += floats(x)[:count]
        round_to(result, out.dtype)

    def argmax(self, count: int, logits: Tensor, best: Tensor, workspace: Workspace) -> None:
        """See `Ops.argmax`."""
        values, result = floats(logits)[:count], floats(best)[:count]
        index = values.argmax(axis=1)
        result[:, 0] = np.take_along_axis(values, index[:, None], axis=1)[:, 0]
        result[:, 1] = index


def _normalise(
    x: FloatArray, weight: FloatArray, eps: float, out: FloatArray, dtype: DType
) -> None:
    scale = np.vecdot(x, x)
    scale *= np.float32(1.0 / x.shape[-1])
    scale += np.float32(eps)
    np.divide(x, np.sqrt(scale, out=scale)[..., None], out=out)
    round_to(out, dtype)
    out *= weight
    round_to(out, dtype)
