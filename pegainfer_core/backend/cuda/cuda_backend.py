"""The CUDA backend: one GPU, one stream, used by the thread that made it."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import numpy as np

from pegainfer_core.backend.base import Backend
from pegainfer_core.backend.cuda import cublaslt
from pegainfer_core.backend.cuda.arrays import address, dense, element, empty_tensor, widened
from pegainfer_core.backend.cuda.cuda_batch import CudaBatch
from pegainfer_core.backend.cuda.cuda_ops import CudaOps
from pegainfer_core.backend.cuda.cuda_page_mover import CudaPageMover, CudaStateMover
from pegainfer_core.backend.cuda.cuda_recurrent_ops import CudaRecurrentOps
from pegainfer_core.backend.cuda.device import Device, PinnedMemory, host_address
from pegainfer_core.backend.cuda.errors import CudaError
from pegainfer_core.backend.cuda.faults import gpu_label, raise_if_lost
from pegainfer_core.backend.cuda.library import KernelLibrary
from pegainfer_core.backend.cuda.memory_budget import (
    GpuMemory,
    pages_within,
    require_room_for_pages,
    require_room_for_states,
    require_room_for_weights,
    room_within,
)
from pegainfer_core.backend.cuda.metadata_upload import MetadataUpload
from pegainfer_core.backend.cuda.parameters import ParameterReader
from pegainfer_core.backend.cuda.piece_scratch import delta_sizes
from pegainfer_core.backend.cuda.products import Products
from pegainfer_core.backend.cuda.sampling import CudaChoice
from pegainfer_core.backend.cuda.step_recorder import StepRecorder
from pegainfer_core.backend.cuda.step_shape import decode_sizes, prompt_sizes, step_shape
from pegainfer_core.backend.cuda.tuned_products import (
    TunedProducts,
    decoder_products,
    hybrid_products,
)
from pegainfer_core.backend.cuda.work_items import AttentionLimits
from pegainfer_core.backend.dtype import DType
from pegainfer_core.backend.kv_pool import KvPool
from pegainfer_core.backend.state_pool import StatePool
from pegainfer_core.kernels import DecoderSizes, catalog, decoder_specs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pegainfer_core.backend.batch import Batch
    from pegainfer_core.backend.decoder import AttentionShape
    from pegainfer_core.backend.kv_layout import KvLayout
    from pegainfer_core.backend.lora_site import LoraSite
    from pegainfer_core.backend.metadata import StepMetadata
    from pegainfer_core.backend.recurrent import DeltaShape
    from pegainfer_core.backend.state_layout import StateLayout
    from pegainfer_core.backend.tensor import Tensor
    from pegainfer_core.kernels import KernelCache
    from pegainfer_core.sampling import ChoiceDevice
    from pegainfer_core.weights import FloatType, ParameterLoader

_STAGING_BYTES: Final = 4 << 20


class CudaBackend(Backend):
    """Runs models on a GPU.

    Args:
        ordinal: Which GPU.
        num_kv_heads: Of the model; decides into how many parts attention is cut.
        group: Query heads a key head, at most; decides how many query tokens share a tile.
        record: Whether decode steps are recorded as graphs and replayed.
        cache: Where kernels are kept.
    """

    name = "cuda"

    def __init__(
        self,
        ordinal: int = 0,
        *,
        num_kv_heads: int = 8,
        group: int = 8,
        record: bool = True,
        cache: KernelCache | None = None,
    ) -> None:
        self.device = Device(ordinal)
        free, total = self.device.memory()
        self._foreign_bytes = total - free
        self.library = KernelLibrary(self.device.arch, cache)
        self.products = Products(self.device, _tuned_products(self.device, self.library))
        self.ops = own = CudaOps(self.device, self.library, self.products)
        self.cuda_products = own.products
        self._num_kv_heads = num_kv_heads
        self._group = group
        self._record = record
        self._recorder = StepRecorder(self.device)
        self._uploads: WeakKeyDictionary[StepMetadata, MetadataUpload] = WeakKeyDictionary()
        self._staging = PinnedMemory(_STAGING_BYTES)
        self._reader: ParameterReader | None = None
        self._next_ids = 0
        self._recurrent = False
        self._decoder: DecoderSizes | None = None
        self._num_lora_slots = 0

    def compute_dtype(self, stored: FloatType) -> DType:
        """As stored, but float16 computes in float32, as on NumPy."""
        return DType.BFLOAT16 if stored == "bfloat16" else DType.FLOAT32

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        """An allocation of its own."""
        return empty_tensor(self.device, shape, dtype)

    def kv_pool(self, layout: KvLayout, num_pages: int) -> KvPool:
        """Zeroed pages.

        Raises:
            ConfigError: They do not fit; the message names the numbers.
        """
        require_room_for_pages(self._memory(), num_pages + 1, layout.page_bytes)
        pool = KvPool(layout, self.empty((num_pages + 1, *layout.page_shape), layout.dtype))
        self.clear_pages(pool)
        return pool

    def adopt(self, values: NDArray[np.float32], dtype: DType) -> Tensor:
        """A copy on the device."""
        tensor = self.empty(values.shape, dtype)
        held = dense(values, dtype)
        self.device.upload(address(tensor), host_address(held), held.nbytes)
        self.device.synchronize()
        return tensor

    def begin_loading(self, loader: ParameterLoader) -> None:
        """Refuse weights that do not fit."""
        num_bytes = loader.num_values * DType(loader.dtype).itemsize
        require_room_for_weights(self._memory(), num_bytes)

    def load(self, loader: ParameterLoader, names: Sequence[str], dtype: DType) -> Tensor:
        """Parameters, through pinned buffers or made on the device."""
        if self._reader is None:
            self._reader = ParameterReader(self.device, self.library)
        return self._reader.load(loader, names, dtype)

    def end_loading(self) -> None:
        """Finish the copies and give the staging buffers back."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def to_host(self, tensor: Tensor, count: int) -> NDArray[np.float32]:
        """A copy, made when all work submitted before is done."""
        row_bytes = math.prod(tensor.shape[1:]) * tensor.dtype.itemsize
        raw = np.empty(count * row_bytes, np.uint8)
        for begin in range(0, raw.size, _STAGING_BYTES):
            size = min(raw.size - begin, _STAGING_BYTES)
            self.device.download(self._staging.address, address(tensor) + begin, size)
            self.device.synchronize()
            raw[begin : begin + size] = self._staging.array[:size]
        return widened(raw, tensor.dtype).reshape(count, *tensor.shape[1:])

    def upload(self, metadata: StepMetadata) -> CudaBatch:
        """One copy; steps of a kind that is recorded are filled up to one of its sizes."""
        upload = self._uploads.get(metadata)
        if upload is None:
            limits = AttentionLimits.of(
                self.device.num_multiprocessors, self._num_kv_heads, self._group
            )
            upload = MetadataUpload(
                self.device, metadata, limits, self._next_ids,
                recurrent=self._recurrent, num_lora_slots=self._num_lora_slots,
            )  # fmt: skip
            self._uploads[metadata] = upload
        return upload.submit(metadata, step_shape(metadata) if self._record else None)

    def run(self, batch: Batch, work: Callable[[Batch], None]) -> None:
        """Replay the recording of `work` at the batch's shape, made at its second use."""
        if isinstance(batch, CudaBatch) and batch.shape is not None:
            self._recorder.run(batch, batch.shape, work)
        else:
            work(batch)

    def recorded_sizes(self, max_rows: int) -> list[int]:
        """Few sizes, the largest of them the limit itself; others are filled up to the next."""
        return decode_sizes(max_rows) if self._record else []

    def recorded_prompts(self, max_tokens: int) -> list[int]:
        """Sizes of short prompts."""
        return prompt_sizes(max_tokens) if self._record else []

    def token_choice(self, vocab_size: int, max_rows: int) -> ChoiceDevice:
        """Kernels that choose, and the table of newest ids that the embedding reads."""
        choice = CudaChoice(self.device, self.library, vocab_size, max_rows, max_rows)
        self._next_ids = choice.next_ids
        return choice

    def prepare_decoder(
        self, shape: AttentionShape, hidden: int, intermediate: int, layout: KvLayout
    ) -> None:
        """Build and load the kernels of a decoder."""
        self._num_kv_heads = shape.num_kv_heads
        self._group = shape.group
        sizes = DecoderSizes(
            element=element(layout.dtype),
            hidden=hidden,
            intermediate=intermediate,
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            page_tokens=layout.page_tokens,
        )
        self._decoder = sizes
        self.library.prepare(decoder_specs(sizes, self.device.arch))
        if layout.dtype is DType.BFLOAT16:
            self.products.tune(decoder_products(shape, hidden, intermediate))

    def prepare_lora(self, sites: Sequence[LoraSite]) -> None:
        """Build and load the kernels of adapters; steps may carry work for them from now on."""
        first = sites[0].down
        self._num_lora_slots = first.shape[0]
        sizes, arch = [(site.down.width, site.widths) for site in sites], self.device.arch
        self.library.prepare(catalog.lora_specs(element(first.dtype), sizes, first.width, arch))

    def pack(self, values: NDArray[np.float32], dtype: DType) -> NDArray[np.generic]:
        """Dense; touches no device."""
        return dense(values, dtype)

    def overwrite(self, tensor: Tensor, index: int, packed: NDArray[np.generic]) -> None:
        """Wait for all steps, then copy."""
        self.device.synchronize()
        self.device.upload(
            address(tensor) + index * packed.nbytes, host_address(packed), packed.nbytes
        )
        self.device.synchronize()

    def fitting_pages(self, layout: KvLayout, utilization: float) -> int:
        """Pages that fit into the share of the GPU's memory not in use yet."""
        return pages_within(self._memory(), layout.page_bytes, utilization)

    def free_bytes(self, utilization: float) -> int | None:
        """Of this engine's share of the GPU's memory."""
        return room_within(self._memory(), utilization)

    def copy_pages(self, kv: KvPool, sources: list[int], targets: list[int]) -> None:
        """Copy whole pages."""
        self._copy_items(address(kv.pages), kv.layout.page_bytes, sources, targets)

    def page_mover(self, kv: KvPool) -> CudaPageMover:
        """Copies on streams of its own."""
        return CudaPageMover(self.device, kv)

    def clear_pages(self, kv: KvPool) -> None:
        """Fill every page with zeros."""
        self.device.fill(address(kv.pages), 0, kv.num_pages * kv.layout.page_bytes)

    def recurrent_ops(self) -> CudaRecurrentOps:
        """Beside the ops of now."""
        return CudaRecurrentOps(self.ops, self.cuda_products, self.device, self.library)

    def prepare_recurrent(
        self, shape: DeltaShape, hidden: int, layout: StateLayout, rotary_dim: int = 0
    ) -> None:
        """Build and load the kernels of recurrent layers; steps carry their work from now on."""
        self._recurrent = True
        sizes, arch = delta_sizes(shape, layout.dtype), self.device.arch
        if rotary_dim and self._decoder is not None:
            self.library.prepare(catalog.hybrid_specs(self._decoder, sizes, rotary_dim, arch))
            if layout.dtype is DType.BFLOAT16:
                self.products.tune(hybrid_products(self._decoder, sizes))
        else:
            self.library.prepare(catalog.recurrent_specs(sizes, arch))

    def state_pool(self, layout: StateLayout, num_slots: int) -> StatePool:
        """Uninitialised slots; padding rows have none and touch none.

        Raises:
            ConfigError: They do not fit; the message names the numbers.
        """
        require_room_for_states(self._memory(), num_slots, layout.slot_bytes)
        return StatePool(
            layout,
            self.empty((num_slots, *layout.memory_shape), DType.FLOAT32),
            self.empty((num_slots, *layout.conv_shape), layout.dtype),
        )

    def copy_states(self, states: StatePool, sources: list[int], targets: list[int]) -> None:
        """Copy whole slots, in stream order."""
        for part in (states.memory, states.conv):
            size = math.prod(part.shape[1:]) * part.dtype.itemsize
            self._copy_items(address(part), size, sources, targets)

    def state_mover(self, states: StatePool) -> CudaStateMover:
        """Copies on streams of its own."""
        return CudaStateMover(self.device, states)

    def raise_if_lost(self) -> None:
        """Ask the context."""
        raise_if_lost(self.device)

    def close(self) -> None:
        """Let go of recorded steps, whose work holds whoever asked for it."""
        with suppress(CudaError):  # a lost device has nothing to wait for
            self.device.synchronize()
        self._uploads.clear()

    def _memory(self) -> GpuMemory:
        free, total = self.device.memory()
        return GpuMemory(gpu_label(self.device), free, total, self._foreign_bytes)

    def _copy_items(
        self, base: int, item_bytes: int, sources: list[int], targets: list[int]
    ) -> None:
        """Of an array at `base`, in stream order."""
        for source, target in zip(sources, targets, strict=True):
            self.device.copy(base + target * item_bytes, base + source * item_bytes, item_bytes)


def _tuned_products(device: Device, library: KernelLibrary) -> TunedProducts:
    kind = f"{device.name}-{cublaslt.version()}".replace(" ", "-")
    return TunedProducts(library.folder / f"products-{kind}.json")
