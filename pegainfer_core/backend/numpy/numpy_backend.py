"""The NumPy backend: host memory, no transfers."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final, cast

import msgspec
import numpy as np

from pegainfer_core.backend.base import Backend
from pegainfer_core.backend.dtype import DType
from pegainfer_core.backend.numpy.arrays import floats, stored_pages
from pegainfer_core.backend.numpy.blas_threads import find_blas_threads, set_blas_threads
from pegainfer_core.backend.numpy.dense_contexts import DenseContexts
from pegainfer_core.backend.numpy.host_memory import host_memory
from pegainfer_core.backend.numpy.matrix_order import in_product_order
from pegainfer_core.backend.numpy.numpy_batch import NumpyBatch
from pegainfer_core.backend.numpy.numpy_kv_pool import NumpyKvPool
from pegainfer_core.backend.numpy.numpy_ops import NumpyOps
from pegainfer_core.backend.numpy.numpy_page_mover import NumpyPageMover, NumpyStateMover
from pegainfer_core.backend.numpy.numpy_recurrent_ops import NumpyRecurrentOps
from pegainfer_core.backend.numpy.product_mode import ProductMode
from pegainfer_core.backend.numpy.thread_team import ThreadTeam
from pegainfer_core.backend.state_pool import StatePool
from pegainfer_core.backend.tensor import Tensor
from pegainfer_core.weights.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pegainfer_core.backend.batch import Batch
    from pegainfer_core.backend.kv_layout import KvLayout
    from pegainfer_core.backend.kv_pool import KvPool
    from pegainfer_core.backend.metadata import StepMetadata
    from pegainfer_core.backend.state_layout import StateLayout
    from pegainfer_core.weights import FloatType, ParameterLoader

_FLOAT32_BYTES: Final = 4

_MIN_LIBRARY_VALUES: Final = 1 << 22
"""A model without a matrix of this size gains nothing from the library's threads."""


class NumpyBackend(Backend):
    """Runs models on the host's cores, without a GPU or a compiler.

    Until it is closed, products elsewhere in the process have a single thread.

    Args:
        num_threads: Threads of matrix products, in the whole process; None leaves the library's
            own number, which is that of the cores.

    Raises:
        ConfigError: The number cannot be set.
    """

    name = "numpy"

    def __init__(self, num_threads: int | None = None) -> None:
        blas = find_blas_threads()
        if num_threads is not None:
            set_blas_threads(blas, num_threads)
        self._team = ThreadTeam(blas)
        self._mode = ProductMode()
        self._largest_values = 0
        self.ops = NumpyOps(self._team)

    def compute_dtype(self, stored: FloatType) -> DType:
        """As stored, but float16 computes in float32, which holds its values and never overflows.

        A float16 checkpoint thus answers as its float32 copy does.
        """
        return DType.BFLOAT16 if stored == "bfloat16" else DType.FLOAT32

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        """Float32, whatever the type.

        Raises:
            ConfigError: The host has less memory than that altogether.
        """
        needed_bytes = math.prod(shape) * _FLOAT32_BYTES
        if needed_bytes > host_memory().total_bytes:
            raise ConfigError(
                f"a buffer of {shape[0]} rows needs {_gib(needed_bytes)}, but this machine has "
                f"{_gib(host_memory().total_bytes)} of memory; lower --max-prefill-tokens or "
                "--max-num-seqs"
            )
        return Tensor(shape, dtype, np.empty(shape, np.float32))

    def kv_pool(self, layout: KvLayout, num_pages: int) -> NumpyKvPool:
        """Zeroed: uint16 bits for bfloat16, else float32. The system gives memory on first use.

        Raises:
            ConfigError: The host has less memory than that altogether.
        """
        _check_pool(num_pages, num_pages * layout.page_bytes)
        shape = (num_pages + 1, *layout.page_shape)
        stored = np.zeros(shape, np.uint16 if layout.dtype is DType.BFLOAT16 else np.float32)
        pages = Tensor(shape, layout.dtype, stored)
        return NumpyKvPool(layout, pages, DenseContexts(layout, stored))

    def adopt(self, values: NDArray[np.float32], dtype: DType) -> Tensor:
        """The array itself."""
        return Tensor(values.shape, dtype, values)

    def begin_loading(self, loader: ParameterLoader) -> None:
        """Refuse weights that the free memory cannot hold; the system would end the process."""
        needed_bytes, free_bytes = _FLOAT32_BYTES * loader.num_values, host_memory().free_bytes
        if needed_bytes > free_bytes:
            raise ConfigError(
                f"the weights need {_gib(needed_bytes)} of memory in float32, but only "
                f"{_gib(free_bytes)} are free; free memory, or serve a smaller model with "
                "--model-path"
            )

    def load(self, loader: ParameterLoader, names: Sequence[str], dtype: DType) -> Tensor:
        """Read parameters, stacked along their first axis, in the order that suits products."""
        values = loader.read_stacked(names)
        self._largest_values = max(self._largest_values, values.size)
        return self.adopt(in_product_order(values), dtype)

    def pack(self, values: NDArray[np.float32], dtype: DType) -> NDArray[np.generic]:
        """The values themselves."""
        return values

    def overwrite(self, tensor: Tensor, index: int, packed: NDArray[np.generic]) -> None:
        """Copy; no step is under way."""
        floats(tensor)[index] = packed

    def to_host(self, tensor: Tensor, count: int) -> NDArray[np.float32]:
        """A view."""
        return floats(tensor)[:count]

    def upload(self, metadata: StepMetadata) -> NumpyBatch:
        """Nothing to copy; derives what the ops need."""
        return NumpyBatch(metadata)

    def copy_pages(self, kv: KvPool, sources: list[int], targets: list[int]) -> None:
        """Copy whole pages."""
        pages = stored_pages(kv)
        pages[targets] = pages[sources]
        cast(NumpyKvPool, kv).contexts.mark_written(targets)

    def clear_pages(self, kv: KvPool) -> None:
        """Fill every page with zeros; touches all of the pool's memory."""
        stored_pages(kv).fill(0)
        cast(NumpyKvPool, kv).contexts.mark_written(list(range(kv.num_pages)))

    def recurrent_ops(self) -> NumpyRecurrentOps:
        """Beside the ops of now."""
        return NumpyRecurrentOps(self.ops)

    def state_pool(self, layout: StateLayout, num_slots: int) -> StatePool:
        """One slot more, the last, for rows without a slot; the system gives memory on first use.

        Raises:
            ConfigError: The host has less memory than that altogether.
        """
        # Held as float32, whatever the type.
        held = msgspec.structs.replace(layout, dtype=DType.FLOAT32)
        needed_bytes, total_bytes = num_slots * held.slot_bytes, host_memory().total_bytes
        if needed_bytes > total_bytes:
            raise ConfigError(
                f"{num_slots} recurrent states need {_gib(needed_bytes)}, but this machine has "
                f"{_gib(total_bytes)} of memory; lower --max-num-seqs or --state-cache-gib"
            )
        memory, conv = (
            np.zeros((num_slots + 1, *shape), np.float32)
            for shape in (layout.memory_shape, layout.conv_shape)
        )
        return StatePool(
            layout,
            Tensor(memory.shape, DType.FLOAT32, memory),
            Tensor(conv.shape, layout.dtype, conv),
        )

    def copy_states(self, states: StatePool, sources: list[int], targets: list[int]) -> None:
        """Copy whole slots."""
        for part in (states.memory, states.conv):
            slots = floats(part)
            slots[targets] = slots[sources]

    def state_mover(self, states: StatePool) -> NumpyStateMover:
        """Copies in the calling thread."""
        return NumpyStateMover(states)

    def page_mover(self, kv: KvPool) -> NumpyPageMover:
        """Copies in the calling thread."""
        return NumpyPageMover(cast(NumpyKvPool, kv))

    def run(self, batch: Batch, work: Callable[[Batch], None]) -> None:
        """Do a step's work, with products shared out by whoever is faster at it now."""
        self._team.alternates = self._largest_values >= _MIN_LIBRARY_VALUES
        by_team = self._mode.choose(batch.num_tokens)
        self._team.by_library = self._team.alternates and not by_team
        started_s = time.perf_counter()
        work(batch)
        self._mode.observe(time.perf_counter() - started_s)

    def close(self) -> None:
        """End the helper threads, and give the library its own back."""
        self._team.close()


def _check_pool(num_pages: int, needed_bytes: int) -> None:
    total_bytes = host_memory().total_bytes
    if needed_bytes > total_bytes:
        raise ConfigError(
            f"{num_pages} KV pages need {_gib(needed_bytes)}, but this machine has "
            f"{_gib(total_bytes)} of memory; lower --num-kv-pages or --max-model-len"
        )


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"
