"""The primitive ops on NumPy: from tensors to arrays. The wide ops are the base class's."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from pegainfer_core.backend.dtype import DType
from pegainfer_core.backend.numpy import kernels
from pegainfer_core.backend.numpy.arrays import floats
from pegainfer_core.backend.numpy.attention import Queries, attend_rows, bind_queries, write_kv
from pegainfer_core.backend.numpy.bindings import Bindings
from pegainfer_core.backend.numpy.low_rank import LowRank, add_low_rank
from pegainfer_core.backend.numpy.numpy_batch import NumpyBatch
from pegainfer_core.backend.numpy.numpy_kv_pool import NumpyKvPool
from pegainfer_core.backend.numpy.thread_team import MIN_SHARED_WORK
from pegainfer_core.backend.ops import Ops

if TYPE_CHECKING:
    from pegainfer_core.backend.batch import Batch
    from pegainfer_core.backend.decoder import AttentionShape
    from pegainfer_core.backend.kv_pool import KvPool
    from pegainfer_core.backend.lora_site import LoraSite
    from pegainfer_core.backend.numpy.arrays import FloatArray
    from pegainfer_core.backend.numpy.thread_team import ThreadTeam
    from pegainfer_core.backend.rope import RopeTable
    from pegainfer_core.backend.tensor import Tensor
    from pegainfer_core.backend.workspace import Workspace

_MAX_BY_VECTOR: Final = 3
"""Up to this many rows are multiplied one by one: a product with a vector reads the matrix at the
speed of memory, one with a few rows repacks it first, which takes as long as four such readings."""


class NumpyOps(Ops):
    """Reference and CPU backend: every other backend's ops are compared with these.

    Args:
        team: Shares out products; None leaves them to the library.
    """

    def __init__(self, team: ThreadTeam | None = None) -> None:
        self._team = team
        self._products: Bindings[list[kernels.Product]] = Bindings()
        self._norms: Bindings[kernels.Norm] = Bindings()
        self._turns: Bindings[kernels.Turn] = Bindings()
        self._gates: Bindings[kernels.Gate] = Bindings()
        self._sums: Bindings[kernels.Sum] = Bindings()
        self._keys: Bindings[FloatArray] = Bindings()
        self._queries: Bindings[Queries] = Bindings()

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
        key = (x, out)
        norm = self._norms.get(count, key)
        if norm is None:
            norm = kernels.bind_norm(floats(x)[:count], floats(out)[:count])
            self._norms.keep(count, key, norm)
        twice = weight.dtype is DType.BFLOAT16
        rounds = out.dtype is DType.BFLOAT16
        kernels.normalise(norm, floats(weight), eps, rounds, rounds_twice=twice)

    def linear(self, count: int, x: Tensor, weight: Tensor, out: Tensor) -> None:
        """See `Ops.linear`."""
        rounds, matrix = out.dtype is DType.BFLOAT16, floats(weight)
        team = self._team if self._team is not None and self._team.size > 1 else None
        pays = count * matrix.size >= MIN_SHARED_WORK
        if count > _MAX_BY_VECTOR:
            product = kernels.bind_product(floats(x)[:count], floats(out)[:count])
            if team is not None and pays:
                kernels.multiply_shared(product, matrix, rounds, team)
            else:
                kernels.multiply_matrix(product, matrix, rounds)
            return
        products = self._vectors(count, x, out)
        if team is not None and team.by_library:
            team.lend(partial(kernels.multiply_vectors, products, matrix, rounds))
        elif team is not None and (pays or team.alternates):
            kernels.multiply_vectors_shared(products, matrix, rounds, team, helped=pays)
        else:
            kernels.multiply_vectors(products, matrix, rounds)

    def _vectors(self, count: int, x: Tensor, out: Tensor) -> list[kernels.Product]:
        """One product a token."""
        key = (x, out)
        bound = self._products.get(count, key)
        if bound is None:
            rows, results = floats(x), floats(out)
            bound = [kernels.bind_product(rows[i], results[i]) for i in range(count)]
            self._products.keep(count, key, bound)
        return bound

    def head_norm(self, count: int, x: Tensor, weight: Tensor, eps: float) -> None:
        """See `Ops.head_norm`."""
        key = (x, weight.shape)
        norm = self._norms.get(count, key)
        if norm is None:
            num_heads, head_dim = weight.shape
            columns = floats(x)[:count, : num_heads * head_dim]
            heads = columns.reshape(count, num_heads, head_dim)
            norm = kernels.bind_norm(heads, heads)
            self._norms.keep(count, key, norm)
        twice = weight.dtype is DType.BFLOAT16
        rounds = x.dtype is DType.BFLOAT16
        kernels.normalise(norm, floats(weight), eps, rounds, rounds_twice=twice)

    def rope(
        self, batch: Batch, x: Tensor, num_heads: int, head_dim: int, table: RopeTable
    ) -> None:
        """See `Ops.rope`."""
        count, key = batch.num_tokens, (x, num_heads, table)
        heads = self._turns.get(count, key)
        if heads is None:
            half = table.cos.width
            columns = floats(x)[:count, : num_heads * head_dim]
            turned = columns.reshape(count, num_heads, head_dim)[..., : 2 * half]
            heads = kernels.bind_turn(turned.reshape(count, num_heads, 2, half))
            self._turns.keep(count, key, heads)
        cos, sin = cast(NumpyBatch, batch).turns(table)
        kernels.turn(heads, cos, sin, x.dtype is DType.BFLOAT16)

    def kv_write(
        self, batch: Batch, qkv: Tensor, shape: AttentionShape, kv: KvPool, layer: int
    ) -> None:
        """See `Ops.kv_write`."""
        count, key = batch.num_tokens, (qkv, shape)
        values = self._keys.get(count, key)
        if values is None:
            columns = floats(qkv)[:count, shape.query_width : shape.qkv_width]
            values = columns.reshape(count, 2, shape.num_kv_heads, shape.head_dim)
            self._keys.keep(count, key, values)
        write_kv(cast(NumpyBatch, batch), values, cast(NumpyKvPool, kv), layer)

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
        count, key = batch.num_tokens, (qkv, shape, attended)
        queries = self._queries.get(count, key)
        if queries is None:
            columns = floats(qkv)[:count, : shape.query_width]
            queries = bind_queries(columns, floats(attended)[:count], shape)
            self._queries.keep(count, key, queries)
        pool = cast(NumpyKvPool, kv)
        attend_rows(cast(NumpyBatch, batch), queries, shape, pool, layer, workspace)
        if attended.dtype is DType.BFLOAT16:
            kernels.round_bfloat16(queries.out, queries.scratch)

    def silu_mul(self, count: int, gate_up: Tensor, out: Tensor) -> None:
        """See `Ops.silu_mul`."""
        key = (gate_up, out)
        gate = self._gates.get(count, key)
        if gate is None:
            both = floats(gate_up)[:count]
            gate = kernels.bind_gate(
                both[:, : out.width], both[:, out.width :], floats(out)[:count]
            )
            self._gates.keep(count, key, gate)
        kernels.silu_multiply(gate, out.dtype is DType.BFLOAT16)

    def add(self, count: int, x: Tensor, out: Tensor) -> None:
        """See `Ops.add`."""
        key = (x, out)
        arrays = self._sums.get(count, key)
        if arrays is None:
            arrays = kernels.bind_sum(floats(x)[:count], floats(out)[:count])
            self._sums.keep(count, key, arrays)
        kernels.accumulate(arrays, out.dtype is DType.BFLOAT16)

    def add_lora(
        self, batch: Batch, x: Tensor, site: LoraSite, out: Tensor, workspace: Workspace
    ) -> None:
        """See `Ops.add_lora`."""
        rounds = out.dtype is DType.BFLOAT16
        down, up, facts = floats(site.down), floats(site.up), floats(site.facts)
        for slot, tokens in cast(NumpyBatch, batch).adapted_tokens:
            scale, rank = facts[slot]
            low_rank = LowRank(down[slot], up[slot], site.widths, int(rank), scale)
            add_low_rank(floats(x), tokens, low_rank, floats(out), rounds)

    def argmax(self, count: int, logits: Tensor, best: Tensor, workspace: Workspace) -> None:
        """See `Ops.argmax`."""
        values, result = floats(logits)[:count], floats(best)[:count]
        index = values.argmax(axis=1)
        result[:, 0] = np.take_along_axis(values, index[:, None], axis=1)[:, 0]
        result[:, 1] = index
