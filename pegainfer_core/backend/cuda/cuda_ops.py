"""The ops on a GPU: cubins and cuBLASLt products on one stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pegainfer_core.backend.cuda.arrays import address, element
from pegainfer_core.backend.cuda.cuda_attention import CudaAttention
from pegainfer_core.backend.cuda.cuda_batch import CudaBatch
from pegainfer_core.backend.cuda.cuda_lora import CudaLora
from pegainfer_core.backend.cuda.cuda_products import CudaProducts, RmsNorm
from pegainfer_core.backend.cuda.pages import layer_address, page_values
from pegainfer_core.backend.dtype import DType
from pegainfer_core.backend.ops import Ops
from pegainfer_core.kernels import catalog

if TYPE_CHECKING:
    from pegainfer_core.backend.batch import Batch
    from pegainfer_core.backend.cuda.device import Device
    from pegainfer_core.backend.cuda.library import KernelLibrary
    from pegainfer_core.backend.cuda.products import Products
    from pegainfer_core.backend.decoder import AttentionShape, AttentionWeights, MlpWeights
    from pegainfer_core.backend.kv_pool import KvPool
    from pegainfer_core.backend.lora_site import LoraSite
    from pegainfer_core.backend.rope import RopeTable
    from pegainfer_core.backend.tensor import Tensor
    from pegainfer_core.backend.workspace import Workspace
    from pegainfer_core.kernels import KernelSpec


class CudaOps(Ops):
    """Implements `Ops` on the device's stream.

    Args:
        device: Where everything lies.
        library: Its kernels.
        products: Its matrix products.

    Attributes:
        products: Which kernel computes a product.
    """

    def __init__(self, device: Device, library: KernelLibrary, products: Products) -> None:
        self._device = device
        self._library = library
        self._overlaps = device.arch >= catalog.OVERLAP_ARCH
        self.products = CudaProducts(device, library, products)
        self._attention = CudaAttention(device, library)
        self._lora = CudaLora(device, library)

    def embed(self, batch: Batch, table: Tensor, hidden: Tensor) -> None:
        """See `Ops.embed`."""
        cuda = cast(CudaBatch, batch)
        self._launch(
            catalog.embed_tokens(element(hidden.dtype), hidden.width),
            (batch.num_tokens, -(-hidden.width // catalog.SMALL_BLOCK)),
            address(table),
            cuda.token_ids,
            cuda.next_ids,
            address(hidden),
            hidden.width,
        )

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
        """See `Ops.norm_qkv_rope_write`; adapters need the norm by itself too."""
        count, cuda = batch.num_tokens, cast(CudaBatch, batch)
        # Laid out even if the first step is small.
        normed = workspace.buffer("normed", hidden.width, hidden.dtype)
        norm = RmsNorm(weights.input_norm, shape.norm_eps)
        fused = self.products.takes_few_rows(count, hidden, qkv)
        if lora is not None or not fused:
            self.rms_norm(count, hidden, norm.weight, norm.eps, normed)
        if lora is not None:
            self._lora.shrink(cuda, normed, lora, workspace)
        if fused:
            self.products.normed(count, hidden, norm, weights.qkv, qkv)
        else:
            self.linear(count, normed, weights.qkv, qkv)
        if lora is not None:
            self._lora.expand(cuda, normed.width, lora, qkv, workspace)
        self._attention.prepare(cuda, qkv, weights.head_norm, rope, shape, kv, layer)

    def out_proj_add(
        self,
        batch: Batch,
        attended: Tensor,
        weight: Tensor,
        hidden: Tensor,
        workspace: Workspace,
        lora: LoraSite | None = None,
    ) -> None:
        """See `Ops.out_proj_add`; the sum is rounded once."""
        self._add(cast(CudaBatch, batch), attended, weight, hidden, workspace, lora)

    def norm_gate_up_act(
        self,
        batch: Batch,
        hidden: Tensor,
        weights: MlpWeights,
        activated: Tensor,
        workspace: Workspace,
        lora: LoraSite | None = None,
    ) -> None:
        """See `Ops.norm_gate_up_act`; what adapters add comes before the activation."""
        count, cuda = batch.num_tokens, cast(CudaBatch, batch)
        # Laid out even if the first step is small.
        normed = workspace.buffer("normed", hidden.width, hidden.dtype)
        gate_up = workspace.buffer("gate_up", weights.gate_up.shape[0], hidden.dtype)
        norm = RmsNorm(weights.norm, weights.norm_eps)
        if lora is None and self.products.takes_few_rows(count, hidden, activated):
            self.products.normed(count, hidden, norm, weights.gate_up, activated, gated=True)
            return
        self.rms_norm(count, hidden, norm.weight, norm.eps, normed)
        if lora is None and self.products.takes_gemv(count, normed, activated):
            self.products.gemv(count, normed, weights.gate_up, activated, gated=True)
            return
        if lora is not None:
            self._lora.shrink(cuda, normed, lora, workspace)
        if lora is not None and self.products.takes_few_rows(count, hidden, gate_up):
            self.products.normed(count, hidden, norm, weights.gate_up, gate_up)
        else:
            self.linear(count, normed, weights.gate_up, gate_up)
        if lora is not None:
            self._lora.expand(cuda, normed.width, lora, gate_up, workspace)
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
        """See `Ops.down_add`; the sum is rounded once."""
        self._add(cast(CudaBatch, batch), activated, weight, hidden, workspace, lora)

    def take_logit_tokens(
        self, batch: Batch, first: int, count: int, x: Tensor, out: Tensor
    ) -> None:
        """See `Ops.take_logit_tokens`."""
        self._take_rows(count, x, cast(CudaBatch, batch).logit_tokens + 4 * first, out)

    def rms_norm(self, count: int, x: Tensor, weight: Tensor, eps: float, out: Tensor) -> None:
        """See `Ops.rms_norm`."""
        # Measured: ahead of our own product, whose weights are on their way by then, an early start
        # costs 4 us a layer; ahead of the library's it saves 1.
        overlaps = self._overlaps and count > self.products.max_gemv_rows
        self._launch(
            catalog.rms_norm(
                element(x.dtype), x.width, overlaps=overlaps, weight=element(weight.dtype)
            ),
            (count, 1),
            address(x),
            address(weight),
            address(out),
            x.width,
            eps,
        )

    def linear(self, count: int, x: Tensor, weight: Tensor, out: Tensor) -> None:
        """See `Ops.linear`."""
        self.products.linear(count, x, weight, out)

    def head_norm(self, count: int, x: Tensor, weight: Tensor, eps: float) -> None:
        """See `Ops.head_norm`."""
        num_heads, head_dim = weight.shape
        spec = catalog.prepare_heads(
            element(x.dtype), head_dim, head_dim // 2, 1, norm=True, rope=False, write=False,
            weight=element(weight.dtype),
        )  # fmt: skip
        self._launch(
            spec, (count, num_heads), address(x), address(weight), 0, 0, 0, 0, 0,
            x.width, 0, num_heads, 0, 0, eps,
        )  # fmt: skip

    def rope(
        self, batch: Batch, x: Tensor, num_heads: int, head_dim: int, table: RopeTable
    ) -> None:
        """See `Ops.rope`."""
        spec = catalog.prepare_heads(
            element(x.dtype), head_dim, table.cos.width, 1, norm=False, rope=True, write=False
        )
        self._launch(
            spec, (batch.num_tokens, num_heads), address(x), 0, address(table.cos),
            address(table.sin), cast(CudaBatch, batch).positions, 0, 0,
            x.width, 0, num_heads, 0, 0, 0.0,
        )  # fmt: skip

    def kv_write(
        self, batch: Batch, qkv: Tensor, shape: AttentionShape, kv: KvPool, layer: int
    ) -> None:
        """See `Ops.kv_write`."""
        spec = catalog.prepare_heads(
            element(qkv.dtype),
            shape.head_dim,
            shape.head_dim // 2,
            kv.layout.page_tokens,
            norm=False,
            rope=False,
            write=True,
        )
        self._launch(
            spec, (batch.num_tokens, shape.num_kv_heads), address(qkv), 0, 0, 0, 0,
            cast(CudaBatch, batch).slots, layer_address(kv, layer),
            qkv.width, shape.num_heads, 0, shape.num_kv_heads, page_values(kv), 0.0,
        )  # fmt: skip

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
        cuda = cast(CudaBatch, batch)
        self._attention.attend(cuda, qkv, shape, kv, layer, attended, workspace)

    def silu_mul(self, count: int, gate_up: Tensor, out: Tensor) -> None:
        """See `Ops.silu_mul`."""
        self._launch(
            catalog.silu_mul(element(out.dtype), out.width),
            (count, -(-out.width // catalog.SMALL_BLOCK)),
            address(gate_up),
            address(out),
            out.width,
        )

    def add(self, count: int, x: Tensor, out: Tensor) -> None:
        """See `Ops.add`."""
        num_values = count * out.width
        self._launch(
            catalog.add_rows(element(out.dtype)),
            (-(-num_values // catalog.SMALL_BLOCK), 1),
            address(x),
            address(out),
            num_values,
        )

    def add_lora(
        self, batch: Batch, x: Tensor, site: LoraSite, out: Tensor, workspace: Workspace
    ) -> None:
        """See `Ops.add_lora`."""
        cuda = cast(CudaBatch, batch)
        self._lora.shrink(cuda, x, site, workspace)
        self._lora.expand(cuda, x.width, site, out, workspace)

    def argmax(self, count: int, logits: Tensor, best: Tensor, workspace: Workspace) -> None:
        """See `Ops.argmax`."""
        parts = catalog.ARGMAX_PARTS
        rows = best.shape[0]
        values = workspace.buffer("argmax_values", parts, DType.FLOAT32, rows)
        indices = workspace.buffer("argmax_indices", parts, DType.FLOAT32, rows)
        block = catalog.ARGMAX_BLOCK
        part_width = -(-logits.width // (parts * block)) * block
        num_parts = -(-logits.width // part_width)
        self._launch(
            catalog.argmax_parts(), (count, num_parts), address(logits), address(values),
            address(indices), logits.width, part_width,
        )  # fmt: skip
        self._launch(
            catalog.argmax_rows(), (count, 1), address(values), address(indices), address(best),
            num_parts,
        )  # fmt: skip

    def _add(
        self,
        batch: CudaBatch,
        x: Tensor,
        weight: Tensor,
        hidden: Tensor,
        workspace: Workspace,
        lora: LoraSite | None,
    ) -> None:
        """A projection added to `hidden`, and what adapters add to it."""
        if lora is not None:
            self._lora.shrink(batch, x, lora, workspace)
        self.products.add(batch.num_tokens, x, weight, hidden)
        if lora is not None:
            self._lora.expand(batch, x.width, lora, hidden, workspace)

    def _take_rows(self, count: int, source: Tensor, indices: int, out: Tensor) -> None:
        self._launch(
            catalog.take_rows(element(out.dtype), out.width),
            (count, -(-out.width // catalog.SMALL_BLOCK)),
            address(source),
            indices,
            address(out),
            out.width,
        )

    def _launch(self, spec: KernelSpec, grid: tuple[int, int], *arguments: float) -> None:
        self._library.get(spec).launch(self._device.stream, grid, *arguments)
